// Measures the rows of docs/performance.md through libibverbs and a device's provider: the cost of the same posts and polls there.
// callgrind counts the loop of a row as it counts the driver's: with the call into the provider. The device runs in a thread of its own,
// which is not counted, because this program opens it past the function that makes posts and polls drive it.
//
//     gcc -O2 -DPROVIDER -I $RDMA_CORE/build/include -I $RDMA_CORE/providers/mlx5 -o data_path tests/peers/data_path.c \
//         -L $RDMA_CORE/build/lib -libverbs
//     export MLX5_SINGLE_THREADED=1 IBV_DRIVERS=mlx5 LD_LIBRARY_PATH=$RDMA_CORE/build/lib
//     bareverbs run -- valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
//         --toggle-collect=FUNCTION ./data_path ROW CHUNKS
//
// FUNCTION is post_sends, make_writes, make_sends, post_receives or poll_all. RDMA_CORE is a source tree of rdma-core and its build. PROVIDER gives each queue pair
// a BlueFlame register, as every provider of a device with such registers does: the device here has none to offer, and reads only doorbell
// records. So a single request is copied to the register, which is plain memory here as in the driver's rows. Without PROVIDER
// (gcc -O2 -o data_path tests/peers/data_path.c -libverbs) a post ends with a doorbell of eight bytes, and the installed library is measured.
// The cost of a row is the difference between two runs with different numbers of chunks, divided by 256 times the difference in
// chunks; the published ones are of 4 and 12 chunks, those of shared receive queues of 12 and 20, because the first pass over such a queue
// is cheaper. Every queue pair is connected to itself.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef PROVIDER
#include <mlx5.h>
#endif

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

// Gives a queue pair a BlueFlame register of two halves, like that of the driver.
static void give_blue_flame(struct ibv_qp *pair) {
#ifdef PROVIDER
    struct mlx5_bf *place = to_mqp(pair)->bf;
    place->uuarn = 1;
    place->buf_size = 256;
#else
    (void)pair;
#endif
}

static struct ibv_qp *make_pair(struct ibv_srq *from, int most_sends, int most_receives) {
    struct ibv_qp_init_attr wanted = {.send_cq = send_queue, .recv_cq = receive_queue, .srq = from, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = most_sends, .max_recv_wr = from ? 0 : most_receives, .max_send_sge = 1, .max_recv_sge = 1,
            .max_inline_data = 220}};
    struct ibv_qp *pair = ibv_create_qp(domain, &wanted);
    must(pair != NULL, "queue pair");
    connect_with_itself(pair);
    give_blue_flame(pair);
    return pair;
}

// Opens a device by libibverbs's own function, so that its context has the provider's own posts and polls.
static struct ibv_context *open_device(struct ibv_device *device) {
    void *library = dlopen("libibverbs.so.1", RTLD_NOW);
    must(library != NULL, "libibverbs");
    struct ibv_context *(*open_it)(struct ibv_device *) = dlsym(library, "ibv_open_device");
    must(open_it != NULL, "ibv_open_device");
    return open_it(device);
}

static void open_all(void) {
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    must(list && count > 0, "a device");
    struct ibv_context *context = open_device(list[0]);
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

__attribute__((noinline)) static void post_sends(struct ibv_qp *pair, int step) {
    struct ibv_send_wr *bad;
    for (int i = 0; i < CHUNK; i += step)
        if (ibv_post_send(pair, &sends[i], &bad)) abort();
}

// Makes each request anew, as a program does that sends other bytes each time.
static inline __attribute__((always_inline)) void make_and_post(struct ibv_qp *pair, enum ibv_wr_opcode opcode, void *bytes, unsigned length) {
    struct ibv_send_wr *bad;
    for (int i = 0; i < CHUNK; i++) {
        struct ibv_sge slice = {(uintptr_t)bytes, length, 0};
        struct ibv_send_wr send = {.wr_id = i, .sg_list = &slice, .num_sge = 1, .opcode = opcode,
            .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
        if (opcode == IBV_WR_RDMA_WRITE) {
            send.wr.rdma.remote_addr = (uintptr_t)memory + REMOTE;
            send.wr.rdma.rkey = region->rkey;
        }
        if (ibv_post_send(pair, &send, &bad)) abort();
    }
}

// The compiler must not know the bytes or their number.
__attribute__((noipa)) static void make_writes(struct ibv_qp *pair, void *bytes, unsigned length) {
    make_and_post(pair, IBV_WR_RDMA_WRITE, bytes, length);
}

__attribute__((noipa)) static void make_sends(struct ibv_qp *pair, void *bytes, unsigned length) {
    make_and_post(pair, IBV_WR_SEND, bytes, length);
}

__attribute__((noinline)) static void post_receives(struct ibv_qp *pair, int step) {
    struct ibv_recv_wr *bad;
    for (int i = 0; i < CHUNK; i += step)
        if (pair->srq ? ibv_post_srq_recv(pair->srq, &receives[i], &bad) : ibv_post_recv(pair, &receives[i], &bad)) abort();
}

__attribute__((noinline)) static void poll_all(struct ibv_cq *queue, int step) {
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
    } else if (ROW("send64")) {
        struct ibv_sge bytes = {(uintptr_t)memory, 64, region->lkey};
        prepare_receives(1);
        post_receives(pairs[0], 1);
        prepare_sends(IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE, &bytes, step);
        post_sends(pairs[0], step);
        drain(send_queue, CHUNK);
        drain(receive_queue, CHUNK);
    } else if (ROW("write8")) {
        prepare_sends(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, &word, step);
        post_sends(pairs[0], step);
        drain(send_queue, CHUNK);
    } else if (ROW("make-write8") || ROW("make-send64")) {
        int send = row[5] == 's';
        prepare_receives(1);
        if (send) post_receives(pairs[0], 1);
        (send ? make_sends : make_writes)(pairs[0], memory, send ? 64 : 8);
        drain(send_queue, CHUNK);
        if (send) drain(receive_queue, CHUNK);
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
        fprintf(stderr, "usage: data_path {write8|write4k|send64|make-write8|make-send64|read|add|receive|srq-receive|poll|poll-receive|srq-poll|poll-in-turn}_x{1|32} CHUNKS\n");
        return 2;
    }
    int step = strstr(arguments[1], "_x32") ? BATCH : 1;
    open_all();
    for (int chunk = 0; chunk < atoi(arguments[2]); chunk++) run_chunk(arguments[1], step);
    return 0;
}
