/* Lockstep: data-parallel training whose result does not depend on the machines. Includes all. */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <lockstep/coll.h>
#include <lockstep/comm.h>
#include <lockstep/data.h>
#include <lockstep/graph.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>
#include <lockstep/replica.h>
#include <lockstep/status.h>
#include <lockstep/types.h>
#include <lockstep/version.h>

#endif
