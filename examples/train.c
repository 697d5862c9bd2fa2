/* Training a small network: which of three spiral arms does a point of the plane lie on?
 *
 *     ./train
 */
#include <math.h>
#include <stdio.h>

#include <lockstep/lockstep.h>

#define BATCH 150
#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != LS_OK)                                                                       \
            return fprintf(stderr, "%s\n", ls_last_error()), 1;                                    \
    } while (0)

int main(void)
{
    /* The network: 2 - 32 - 32 - 3. Errors are kept until it is compiled. */
    ls_graph_config config = LS_GRAPH_CONFIG_INIT;
    config.batch = BATCH;
    ls_graph *graph;
    TRY(ls_graph_create(&config, &graph));
    ls_tensor *point = ls_input(graph, "point", LS_F32, 1, (size_t[]){2});
    ls_tensor *arm = ls_input(graph, "arm", LS_I32, 0, NULL);
    ls_tensor *x = ls_relu(graph, ls_linear(graph, point, 32));
    x = ls_relu(graph, ls_linear(graph, x, 32));
    ls_tensor *logits = ls_linear(graph, x, 3);
    TRY(ls_graph_compile(graph, ls_cross_entropy(graph, logits, arm, 0, -100), logits));

    /* The data, where the network reads it. */
    float(*points)[2] = ls_input_data(graph, point);
    int32_t *arms = ls_input_data(graph, arm);
    for (int i = 0; i < BATCH; i++) {
        const float along = (float)(i / 3) / (BATCH / 3);
        arms[i] = i % 3;
        points[i][0] = along * cosf(4 * along + 2.1f * (float)arms[i]);
        points[i][1] = along * sinf(4 * along + 2.1f * (float)arms[i]);
    }

    /* The optimizer is told which parameters there are. */
    ls_param_info info[6]; /* weight and bias of three layers */
    for (int i = 0; i < 6; i++)
        TRY(ls_graph_param(graph, i, &info[i]));
    ls_optim_config adam = LS_OPTIM_CONFIG_INIT;
    adam.name = "adamw";
    adam.lr = 0.01f;
    ls_optimizer *optimizer;
    TRY(ls_optimizer_create(&adam, info, 6, ls_graph_param_elements(graph), &optimizer));

    ls_run_config run = LS_RUN_CONFIG_INIT;
    ls_run_result result;
    run.training = run.backward = 1;
    for (run.step = 0; run.step <= 400; run.step++) {
        TRY(ls_graph_run(graph, &run, &result));
        TRY(ls_optimizer_step(optimizer, ls_graph_params(graph), ls_graph_grads(graph),
                              (float)(1 / result.count)));
        if (run.step % 100 == 0)
            printf("step %d: loss %.4f\n", (int)run.step, result.loss / result.count);
    }
    ls_optimizer_destroy(optimizer);
    ls_graph_destroy(graph);
    return result.loss / result.count < 0.1 ? 0 : 1;
}
