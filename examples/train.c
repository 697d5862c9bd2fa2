/* Training a small network: which of three spiral arms does a point of the plane lie on?
 *
 *     ./train
 */
#include <math.h>
#include <stdio.h>

#include <lockstep/lockstep.h>

#define BATCH 150
#define STEPS 400

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ls_last_error());
    return 1;
}

/* Point i of the three arms, and its arm. */
static int spiral(int i, float point[2])
{
    const int arm = i % 3;
    const float along = (float)(i / 3) / (BATCH / 3);
    const float angle = 4 * along + 2.1f * (float)arm;
    point[0] = along * cosf(angle);
    point[1] = along * sinf(angle);
    return arm;
}

int main(void)
{
    /* The network: 2 - 32 - 32 - 3. Errors are kept until it is compiled. */
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.batch = BATCH;
    ls_graph *graph;
    if (ls_graph_create(&config, &graph) != LS_OK)
        return fail("ls_graph_create");
    ls_tensor *point = ls_input(graph, "point", LS_F32, 1, (size_t[]){2});
    ls_tensor *arm = ls_input(graph, "arm", LS_I32, 0, NULL);
    ls_tensor *x = ls_relu(graph, ls_linear(graph, point, 32));
    x = ls_relu(graph, ls_linear(graph, x, 32));
    ls_tensor *logits = ls_linear(graph, x, 3);
    ls_tensor *loss = ls_cross_entropy(graph, logits, arm, 0, -100);
    if (ls_graph_compile(graph, loss, logits) != LS_OK)
        return fail("ls_graph_compile");

    /* The optimizer is told which parameters there are. */
    ls_param_info info[16];
    const int count = ls_graph_param_count(graph);
    for (int i = 0; i < count; i++)
        ls_graph_param(graph, i, &info[i]);
    ls_optim_config adam = LS_OPTIM_CONFIG_INIT;
    adam.name = "adamw";
    adam.lr = 0.01f;
    ls_optimizer *optimizer;
    if (ls_optimizer_create(&adam, info, count, ls_graph_param_elements(graph), &optimizer) !=
        LS_OK)
        return fail("ls_optimizer_create");

    ls_run_config run = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    run.training = run.backward = 1;
    for (run.step = 0; run.step <= STEPS; run.step++) {
        for (int i = 0; i < BATCH; i++)
            ((int32_t *)ls_input_data(graph, arm))[i] =
                spiral(i, (float *)ls_input_data(graph, point) + 2 * (size_t)i);
        if (ls_graph_run(graph, &run, &result) != LS_OK)
            return fail("ls_graph_run");
        if (run.step % 100 == 0)
            printf("step %d: loss %.4f\n", (int)run.step, result.loss / result.count);
        if (ls_optimizer_step(optimizer, ls_graph_params(graph), ls_graph_grads(graph),
                              (float)(1 / result.count)) != LS_OK)
            return fail("ls_optimizer_step");
    }
    ls_optimizer_destroy(optimizer);
    ls_graph_destroy(graph);
    return result.loss / result.count < 0.1 ? 0 : 1;
}
