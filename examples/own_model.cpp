// The same from C++: a straight line through points, fitted by every worker together.
//
//     lockstep run -n 3 -- ./own_model_cpp
//
// Here weights and gradients are the replica's own memory, shared by the workers of a host: nothing
// is copied. The last line is the same for any -n.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <lockstep/lockstep.h>

namespace {

// Owns the communicator and the replica; throws nothing, every call is checked.
struct Training {
    ls_comm *comm = nullptr;
    ls_replica *replica = nullptr;
    ~Training()
    {
        ls_replica_destroy(replica);
        ls_finalize(comm);
    }
};

int fail(const char *what)
{
    std::fprintf(stderr, "%s: %s\n", what, ls_last_error());
    return 1;
}

constexpr std::uint64_t batch = 96;

// y = 3 x - 1, on points between -1 and 1.
float x_of(std::uint64_t i)
{
    return static_cast<float>(i % 48) / 24.0f - 1.0f;
}

} // namespace

int main()
{
    Training t;
    if (ls_init(nullptr, &t.comm) != LS_OK)
        return fail("ls_init");
    ls_optim_config sgd = LS_OPTIM_CONFIG_INIT;
    sgd.lr = 0.3f;
    ls_replica_config config = LS_REPLICA_CONFIG_INIT;
    config.batch = batch;
    config.optimizer = &sgd;
    if (ls_replica_create(t.comm, &config, &t.replica) != LS_OK ||
        ls_replica_add(t.replica, "slope", nullptr, nullptr, 1) != LS_OK ||
        ls_replica_add(t.replica, "offset", nullptr, nullptr, 1) != LS_OK ||
        ls_replica_start(t.replica) != LS_OK)
        return fail("ls_replica_start");

    ls_replica_result result{};
    for (int step = 0; step < 100; step++) {
        if (ls_replica_begin(t.replica, batch) != LS_OK)
            return fail("ls_replica_begin");
        const float slope = *ls_replica_weights(t.replica, 0);
        const float offset = *ls_replica_weights(t.replica, 1);
        for (ls_shard shard; ls_replica_next(t.replica, &shard);) {
            float slope_gradient = 0, offset_gradient = 0;
            double loss = 0;
            for (std::uint64_t i = shard.first; i < shard.end; i++) {
                const float x = x_of(i), error = slope * x + offset - (3 * x - 1);
                slope_gradient += 2 * error * x;
                offset_gradient += 2 * error;
                loss += static_cast<double>(error) * static_cast<double>(error);
            }
            *ls_replica_gradient(t.replica, 0) = slope_gradient;
            *ls_replica_gradient(t.replica, 1) = offset_gradient;
            ls_replica_ready(t.replica, 0);
            ls_replica_ready(t.replica, 1);
            if (ls_replica_done(t.replica, loss, static_cast<double>(shard.end - shard.first)) !=
                LS_OK)
                return fail("ls_replica_done");
        }
        if (ls_replica_sync(t.replica, &result) != LS_OK)
            return fail("ls_replica_sync");
    }
    const float slope = *ls_replica_weights(t.replica, 0);
    const float offset = *ls_replica_weights(t.replica, 1);
    std::uint32_t bits[2];
    std::memcpy(&bits[0], &slope, sizeof slope);
    std::memcpy(&bits[1], &offset, sizeof offset);
    if (ls_comm_rank(t.comm) == 0)
        std::printf("slope %.6f offset %.6f weights %08x%08x\n", static_cast<double>(slope),
                    static_cast<double>(offset), bits[0], bits[1]);
    return result.loss < 1e-6 ? 0 : 1;
}
