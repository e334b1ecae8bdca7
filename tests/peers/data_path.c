// Measures the rows of docs/performance.md through libibverbs and a device's provider: the cost of the same posts and polls there.
// callgrind counts only inside the provider's function. It excludes the loop and the call around it, which the driver's figures
// include, and the device, which a program under `bareverbs run` runs itself when it posts or polls.
//
//     gcc -O2 -o data_path tests/peers/data_path.c -libverbs
//     export MLX5_SINGLE_THREADED=1
//     bareverbs run -- valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
//         --toggle-collect=FUNCTION ./data_path ROW CHUNKS
//
// FUNCTION is mlx5_post_send, mlx5_post_recv, mlx5_post_srq_recv or mlx5_poll_cq_v1; libmlx5 must have its symbols. To use another build
// of rdma-core than the installed one, set LD_LIBRARY_PATH to it and IBV_DRIVERS=mlx5 to select the provider.
// The cost of a row is the difference between two runs with different numbers of chunks, divided by 256 times the difference in
// chunks. Every queue pair is connected to itself.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 256, BATCH = 32, PAIRS = 32, MEMORY = 1 << 20, REMOTE = 8192, SETTLE_US = 400000 };
enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static struct ibv_pd *domain;
static struct ibv_mr *region;
static char *memory;
static struct ibv_cq *send_queue, *receive_queue;
static struct ibv_srq *shared;
static struct ibv_qp *pairs[PAIRS], *sharing;
static union ibv_gid gid;
static int gid_index;
static struct ibv_sge page, word;
static struct ibv_send_wr sends[CHUNK];
static struct ibv_recv_wr receives[CHUNK];

static void must(int done, const char *what) {
    if (done) return;
    perror(what);
    exit(1);
}

static void connect_with_itself(struct ibv_qp *pair) {
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL};
    must(!ibv_modify_qp(pair, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = pair->qp_num,
        .max_dest_rd_atomic = 16, .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = gid_index, .hop_limit = 64}}};
    must(!ibv_modify_qp(pair, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16};
    must(!ibv_modify_qp(pair, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
        IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static struct ibv_qp *make_pair(struct ibv_srq *from, int most_sends, int most_receives) {
    struct ibv_qp_init_attr wanted = {.send_cq = send_queue, .recv_cq = receive_queue, .srq = from, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = most_sends, .max_recv_wr = from ? 0 : most_receives, .max_send_sge = 1, .max_recv_sge = 1,
            .max_inline_data = 220}};
    struct ibv_qp *pair = ibv_create_qp(domain, &wanted);
    must(pair != NULL, "queue pair");
    connect_with_itself(pair);
    return pair;
}

static void open_all(void) {
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    must(list && count > 0, "a device");
    struct ibv_context *context = ibv_open_device(list[0]);
    must(context != NULL, "open");
    domain = ibv_alloc_pd(context);
    must(domain && !posix_memalign((void **)&memory, 4096, MEMORY), "memory");
    memset(memory, 0, MEMORY);
    region = ibv_reg_mr(domain, memory, MEMORY, ALL);
    must(region != NULL, "region");
    for (gid_index = 3; gid_index >= 0; gid_index--)
        if (!ibv_query_gid(context, 1, gid_index, &gid) && gid.global.interface_id) break;
    must(gid_index >= 0, "an address");
    send_queue = ibv_create_cq(context, 1023, NULL, NULL, 0);
    receive_queue = ibv_create_cq(context, 1023, NULL, NULL, 0);
    struct ibv_srq_init_attr list_of = {.attr = {.max_wr = 1023, .max_sge = 1}};
    shared = ibv_create_srq(domain, &list_of);
    must(send_queue && receive_queue && shared, "queues");
    for (int i = 0; i < PAIRS; i++) pairs[i] = make_pair(NULL, i ? 64 : 512, i ? 16 : 1024);
    sharing = make_pair(shared, 512, 0);
    page = (struct ibv_sge){(uintptr_t)memory, 4096, region->lkey};
    word = (struct ibv_sge){(uintptr_t)memory, 8, region->lkey};
}

// Prepares the requests of a chunk, in lists of `step`.
static void prepare_sends(enum ibv_wr_opcode opcode, unsigned flags, struct ibv_sge *slice, int step) {
    for (int i = 0; i < CHUNK; i++) {
        sends[i] = (struct ibv_send_wr){.wr_id = 7, .opcode = opcode, .send_flags = flags, .sg_list = slice, .num_sge = 1};
        if ((i + 1) % step) sends[i].next = &sends[i + 1];
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            sends[i].wr.atomic.remote_addr = (uintptr_t)memory + REMOTE;
            sends[i].wr.atomic.rkey = region->rkey;
            sends[i].wr.atomic.compare_add = 1;
        } else {
            sends[i].wr.rdma.remote_addr = (uintptr_t)memory + REMOTE;
            sends[i].wr.rdma.rkey = region->rkey;
        }
    }
    sends[CHUNK - 1].send_flags |= IBV_SEND_SIGNALED;
}

static void prepare_receives(int step) {
    for (int i = 0; i < CHUNK; i++) {
        receives[i] = (struct ibv_recv_wr){.wr_id = 7, .sg_list = &page, .num_sge = 1};
        if ((i + 1) % step) receives[i].next = &receives[i + 1];
    }
}

static void post_sends(struct ibv_qp *pair, int step) {
    struct ibv_send_wr *bad;
    for (int i = 0; i < CHUNK; i += step)
        if (ibv_post_send(pair, &sends[i], &bad)) abort();
}

static void post_receives(struct ibv_qp *pair, int step) {
    struct ibv_recv_wr *bad;
    for (int i = 0; i < CHUNK; i += step)
        if (pair->srq ? ibv_post_srq_recv(pair->srq, &receives[i], &bad) : ibv_post_recv(pair, &receives[i], &bad)) abort();
}

static void poll_all(struct ibv_cq *queue, int step) {
    static struct ibv_wc found[BATCH];
    for (int i = 0; i < CHUNK; i += step)
        must(ibv_poll_cq(queue, step, found) == step, "completions that are not there yet");
}

// Polls until `count` requests have completed.
static void drain(struct ibv_cq *queue, int count) {
    struct ibv_wc found;
    for (int waited = 0; count > 0; waited++) {
        int polled = ibv_poll_cq(queue, 1, &found);
        must(polled >= 0 && waited < 60000 + CHUNK, "completion");
        must(!polled || found.status == IBV_WC_SUCCESS, "success");
        count -= polled;
        if (!polled) usleep(500);
    }
}

// Sends messages for the receives of a chunk. Rows that poll also count one poll per chunk: less than one instruction per operation.
static void feed(struct ibv_qp *pair) {
    prepare_sends(IBV_WR_SEND, 0, &word, 1);
    post_sends(pair, 1);
    usleep(SETTLE_US);
    drain(send_queue, 1);
}

static void run_chunk(const char *row, int step) {
    int is = 0;
#define ROW(name) (!strncmp(row, name, is = sizeof name - 1) && row[is] == '_')
    if (ROW("write4k") || ROW("read") || ROW("add")) {
        int add = row[0] == 'a';
        enum ibv_wr_opcode opcode = add ? IBV_WR_ATOMIC_FETCH_AND_ADD : row[0] == 'r' ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        prepare_sends(opcode, 0, add ? &word : &page, step);
        post_sends(pairs[0], step);
        drain(send_queue, 1);
    } else if (ROW("write8")) {
        prepare_sends(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, &word, step);
        post_sends(pairs[0], step);
        drain(send_queue, CHUNK);
    } else if (ROW("receive") || ROW("srq-receive")) {
        struct ibv_qp *pair = row[0] == 's' ? sharing : pairs[0];
        prepare_receives(step);
        post_receives(pair, step);
        feed(pair);
        drain(receive_queue, CHUNK);
    } else if (ROW("poll-receive") || ROW("srq-poll")) {
        struct ibv_qp *pair = row[0] == 's' ? sharing : pairs[0];
        prepare_receives(1);
        post_receives(pair, 1);
        feed(pair);
        usleep(SETTLE_US);
        poll_all(receive_queue, step);
    } else if (ROW("poll") || ROW("poll-in-turn")) {
        prepare_sends(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, &word, 1);
        int used = row[4] == '_' ? 1 : PAIRS;
        for (int i = 0; i < CHUNK; i++) {
            struct ibv_send_wr *bad;
            if (ibv_post_send(pairs[i % used], &sends[i], &bad)) abort();
            if (used > 1) usleep(200); // so that the completions alternate too
        }
        usleep(SETTLE_US);
        poll_all(send_queue, step);
    } else {
        fprintf(stderr, "no such row: %s\n", row);
        exit(2);
    }
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: data_path {write8|write4k|read|add|receive|srq-receive|poll|poll-receive|srq-poll|poll-in-turn}_x{1|32} CHUNKS\n");
        return 2;
    }
    int step = strstr(arguments[1], "_x32") ? BATCH : 1;
    open_all();
    for (int chunk = 0; chunk < atoi(arguments[2]); chunk++) run_chunk(arguments[1], step);
    return 0;
}
