//! The table: every crate, its rooms from the bottom up, and what each may name. ARCHITECTURE.md describes
//! the same in prose.
//!
//! Add new crates and rooms here; a room that is missing here is an error.

/// What one crate may do.
#[derive(Debug)]
pub struct CrateRules {
    /// Its name in Cargo.
    pub package: &'static str,
    /// Where it is.
    pub directory: &'static str,
    /// Crates of this workspace that it may name.
    pub knows: &'static [&'static str],
    /// Its rooms from the bottom up. A room may name rooms of its own layer and of those below it.
    pub layers: &'static [&'static [&'static str]],
    /// Its rooms that get time and randomness as arguments, and print nothing.
    pub pure: &'static [&'static str],
    /// What else a room may not name.
    pub bans: &'static [Ban],
}

/// Names that a room may not mention.
#[derive(Debug)]
pub struct Ban {
    /// The room, as a path below the crate.
    pub room: &'static str,
    /// The names, as full paths. `crate` is the crate itself.
    pub names: &'static [&'static str],
    /// Names below those that are allowed.
    pub but: &'static [&'static str],
    /// The rule in words.
    pub why: &'static str,
}

/// Every room of a crate.
const ALL: &[&str] = &["*"];

/// What pure rooms may not name: clocks, threads, randomness, hash order, output, the operating system. They may
/// read and write by `std::io::Read` and `Write`: whoever calls them says where to.
pub const IMPURE: &[&str] = &[
    "std::time",
    "std::thread",
    "std::net",
    "std::fs",
    "std::env",
    "std::process",
    "std::os",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::collections::hash_map",
    "std::collections::hash_set",
    "std::hash::RandomState",
    "getrandom",
    "rand",
    "tokio",
    "libc",
    "rustix",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
];

impl CrateRules {
    /// Its name in Rust.
    pub fn library(&self) -> String {
        self.package.replace('-', "_")
    }

    /// Its manifest.
    pub fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.directory)
    }

    /// The layer of a room.
    pub fn layer(&self, room: &str) -> Option<usize> {
        self.layers.iter().position(|rooms| rooms.contains(&room))
    }

    /// Whether a room is pure.
    pub fn is_pure(&self, room: &str) -> bool {
        self.pure == ALL || self.pure.contains(&room)
    }
}

/// The crates from the bottom up.
pub const HOUSE: &[CrateRules] = &[
    CrateRules {
        package: "bareverbs-prm",
        directory: "driver/prm",
        knows: &[],
        layers: &[
            &["lib"],
            &["field", "mutation", "time", "pci"],
            &["ids", "numbering", "psn"],
            &["init_segment", "doorbell", "context", "wqe", "cqe", "eqe"],
            &["command"],
            &["registry"],
        ],
        pure: ALL,
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-uapi",
        directory: "uapi",
        knows: &[],
        layers: &[
            &["structure", "numbers"],
            &["core_verbs", "frame", "mlx5", "mlx5_objects", "objects", "rdma_cm"],
            &["lib"],
        ],
        pure: ALL,
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-core",
        directory: "driver",
        knows: &["bareverbs_prm"],
        layers: &[
            &[
                "barrier",
                "boot_step",
                "address_vector",
                "memory_slice",
                "gid",
                "capabilities",
                "ring",
                "ledger",
            ],
            &["hal", "work_completion", "gid_choice"],
            &["dma", "post_error"],
            &["cqe", "wqe"],
            &["work_request"],
            &["doorbell", "command"],
            &["trace", "translation"],
            &["executor"],
            &["capability_page"],
            &["page_supply"],
            &["events"],
            &["device"],
            &[
                "protection_domain",
                "xrc_domain",
                "counter_set",
                "port",
                "port_counters",
                "completion_channel",
            ],
            &["port_link", "identity", "flow_control", "congestion_control"],
            &["error_correction"],
            &["completion_queue", "memory_key", "memory_region", "address_handle"],
            &["indirect_region", "key_update", "shared_region"],
            &["shared_receive_queue", "queue_pair", "fast_region", "memory_window", "remote_vhca_region"],
            &["dma_queue"],
            &["testing"],
        ],
        pure: ALL,
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-sim",
        directory: "sim",
        knows: &["bareverbs_prm"],
        layers: &[&["wire"], &["transport", "net"], &["nic"], &["run"]],
        pure: ALL,
        bans: &[
            Ban {
                room: "transport",
                names: &[
                    "bareverbs_prm::wqe",
                    "bareverbs_prm::cqe",
                    "bareverbs_prm::eqe",
                    "bareverbs_prm::context",
                    "bareverbs_prm::command",
                    "bareverbs_prm::ids::Mkey",
                ],
                but: &[],
                why: "transport knows no WQE, CQE or mkey",
            },
            Ban {
                room: "net",
                names: &["crate::nic", "crate::transport"],
                but: &[],
                why: "net carries frames and knows no device",
            },
            Ban { room: "nic", names: &["crate::net", "crate::run"], but: &[], why: "nic knows no delay" },
        ],
    },
    CrateRules {
        package: "bareverbs-serve",
        directory: "sim/serve",
        knows: &["bareverbs_prm", "bareverbs_sim"],
        layers: &[&["listening"], &["real_time", "network"], &["fabric"], &["vfio_user"]],
        pure: &[],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-cm",
        directory: "exchange/cm",
        knows: &["bareverbs_prm"],
        layers: &[&[
            "connection",
            "ip_ends",
            "message",
            "parameters",
            "compose",
            "manager",
            "receive",
            "ended",
        ]],
        pure: ALL,
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-uverbs",
        directory: "sim/uverbs",
        knows: &["bareverbs_prm", "bareverbs_uapi", "bareverbs_cm", "bareverbs_sim"],
        layers: &[
            &["errno", "host_settings", "device_index", "ip_network", "devx_object"],
            &["schema", "kernel_memory", "host", "files", "event_record", "connection_names", "mapping"],
            &["process"],
            &["attributes", "request", "events", "page_list"],
            &["port_state"],
            &["commands", "sysfs", "queues", "null_process"],
            &["subnet"],
            &[
                "boot",
                "netlink",
                "event_queues",
                "doorbells",
                "async_events",
                "transition",
                "kernel_completions",
            ],
            &["key_changes", "rdma_cm"],
            &["general_services"],
            &["device"],
            &["call"],
            &["address_path", "object_methods", "device_methods"],
            &["devx"],
            &["memory_methods", "completion_methods", "shared_receive_methods"],
            &["queue_pair_methods", "queue_pair_state", "address_methods"],
            &["write_commands"],
            &["uverbs"],
            &["rdma_cm_file", "object_list"],
            &["drive"],
        ],
        pure: ALL,
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-network",
        directory: "sim/network",
        knows: &["bareverbs_prm", "bareverbs_sim", "bareverbs_serve", "bareverbs_uverbs"],
        layers: &[
            &["ring", "neighbours", "pace", "neighbour_message", "outside"],
            &["wire", "discovery"],
            &["frame_io", "bridge"],
        ],
        pure: &[],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-preload",
        directory: "sim/preload",
        knows: &[
            "bareverbs_prm",
            "bareverbs_uapi",
            "bareverbs_sim",
            "bareverbs_serve",
            "bareverbs_uverbs",
            "bareverbs_network",
        ],
        layers: &[
            &["errno", "descriptors", "event_files", "memory", "verbs_layout"],
            &["next", "settings", "connection_files"],
            &["guarded", "own_work"],
            &["paths"],
            &["program", "nic_thread"],
            &["link"],
            &["device"],
            &["connection_calls"],
            &["calls", "names", "netlink_sockets", "verbs_calls"],
            &["interfaces"],
        ],
        pure: &[],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-hal",
        directory: "hal",
        knows: &["bareverbs_prm", "bareverbs_uapi", "bareverbs_core"],
        layers: &[
            &["ranges", "mapped_bar", "interrupts", "clock"],
            &["memory"],
            &["pci"],
            &["vfio"],
            &["vfio_user", "uverbs"],
        ],
        pure: &[],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-hal-sim",
        directory: "hal/sim",
        knows: &["bareverbs_prm", "bareverbs_core", "bareverbs_sim", "bareverbs_serve"],
        layers: &[
            &["registers", "block"],
            &["page_table", "views"],
            &["arena"],
            &["memory"],
            &["world"],
            &["hal", "real_time"],
        ],
        pure: &["page_table", "block", "arena", "memory", "views", "hal", "world"],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-offload",
        directory: "offload",
        knows: &["bareverbs_prm", "bareverbs_core"],
        layers: &[
            &["status", "cost", "endpoint"],
            &["grant"],
            &["host_dma", "kernel"],
            &["kernels", "wire", "streams"],
            &["budget", "program"],
            &["runtime"],
            &["table"],
            &["verbs", "card", "own_memory", "client", "dpu", "local"],
        ],
        pure: ALL,
        bans: &[Ban {
            room: "kernels",
            names: &["crate", "bareverbs_core"],
            but: &["crate::kernel", "crate::kernels", "crate::grant", "crate::status"],
            why: "kernels know kernel, grant and status only",
        }],
    },
    CrateRules {
        package: "bareverbs-offload-native",
        directory: "offload/native",
        knows: &["bareverbs_offload"],
        layers: &[
            &["buffer", "frame", "operators"],
            &["access"],
            &["known", "operations"],
            &["pointers"],
            &["translate"],
            &["aarch64", "memory", "no_memory", "x86_64"],
            &["program"],
        ],
        pure: &[
            "buffer",
            "frame",
            "operators",
            "access",
            "known",
            "operations",
            "pointers",
            "translate",
            "aarch64",
            "x86_64",
        ],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-exchange",
        directory: "exchange",
        knows: &["bareverbs_prm", "bareverbs_core"],
        layers: &[&["message"], &["error", "proof"], &["line"], &["session"], &["call"]],
        pure: &["message", "proof"],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-futures",
        directory: "futures",
        knows: &["bareverbs_prm", "bareverbs_core"],
        layers: &[
            &["lock"],
            &["buffer"],
            &["error"],
            &["operations"],
            &["dispatcher"],
            &["registration"],
            &["operation"],
            &["queue_pair"],
        ],
        pure: ALL,
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-cluster",
        directory: "cluster",
        knows: &[
            "bareverbs_prm",
            "bareverbs_core",
            "bareverbs_sim",
            "bareverbs_hal_sim",
            "bareverbs_futures",
        ],
        layers: &[
            &["clock", "executor", "failure"],
            &["state"],
            &["host"],
            &["cluster", "meeting"],
            &["control", "station"],
            &["fault"],
            &["limits"],
            &["trial"],
            &["explore"],
        ],
        pure: &[
            "clock", "executor", "failure", "state", "host", "cluster", "meeting", "control", "station",
            "fault", "limits", "trial",
        ],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-macros",
        directory: "cluster/macros",
        knows: &[],
        layers: &[&["lib"]],
        pure: ALL,
        bans: &[],
    },
    CrateRules {
        package: "bareverbs",
        directory: "bareverbs",
        knows: &[
            "bareverbs_prm",
            "bareverbs_core",
            "bareverbs_sim",
            "bareverbs_serve",
            "bareverbs_hal",
            "bareverbs_hal_sim",
            "bareverbs_exchange",
            "bareverbs_futures",
            "bareverbs_cluster",
            "bareverbs_macros",
            "bareverbs_offload",
            "bareverbs_offload_native",
        ],
        layers: &[&["sim", "real_time", "prelude"]],
        pure: ALL,
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-bare-metal",
        directory: "bare-metal",
        knows: &["bareverbs_prm", "bareverbs_core", "bareverbs_offload", "bareverbs_bare_metal"],
        layers: &[
            &["arena", "console", "exchange", "pci", "rows"],
            &["hal", "lookup"],
            &["image", "machine"],
            &["main"],
        ],
        pure: &[],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-perftest",
        directory: "host-tools/perftest",
        knows: &["bareverbs_prm"],
        layers: &[&["lib", "payload"], &["line"], &["exchange"]],
        pure: &[],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-tools",
        directory: "host-tools",
        knows: &[
            "bareverbs",
            "bareverbs_prm",
            "bareverbs_core",
            "bareverbs_cluster",
            "bareverbs_sim",
            "bareverbs_serve",
            "bareverbs_hal",
            "bareverbs_hal_sim",
            "bareverbs_offload",
            "bareverbs_offload_native",
            "bareverbs_cm",
            "bareverbs_uverbs",
            "bareverbs_network",
            "bareverbs_perftest",
            "bareverbs_exchange",
        ],
        layers: &[
            &[
                "lib",
                "glue",
                "network",
                "output",
                "outside_wire",
                "port_address",
                "program_object",
                "datagram_queue",
                "input_file",
                "general_services",
                "any_place",
            ],
            &["place", "counters", "traffic", "link_type", "offload_figures"],
            &["seat", "ipoib"],
            &["rdma_cm"],
            &[
                "advise", "demo", "devinfo", "dpu", "gids", "inject", "kernel", "manual", "monitor", "perf",
                "run", "serve", "vfio",
            ],
            &["doctor", "ping", "advise_check"],
            &["explain"],
            &["report"],
            &["main"],
        ],
        pure: &[],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-tests",
        directory: "tests",
        knows: &[
            "bareverbs",
            "bareverbs_prm",
            "bareverbs_core",
            "bareverbs_sim",
            "bareverbs_serve",
            "bareverbs_hal",
            "bareverbs_hal_sim",
            "bareverbs_futures",
            "bareverbs_offload",
            "bareverbs_bare_metal",
            "bareverbs_uverbs",
            "bareverbs_perftest",
        ],
        layers: &[
            &[
                "conformance",
                "device_fields",
                "free_port",
                "judges",
                "kill_on_drop",
                "node",
                "perftest_rows",
                "prm_tables",
            ],
            &["attack", "boot_trace", "datagrams", "installation", "pair", "places", "shared"],
            &["guest", "replay", "tap", "trace_memory", "walk"],
            &["hosted"],
            &["bin/attacker", "bin/conformance", "bin/guest", "bin/run-judge"],
        ],
        pure: &[],
        bans: &[],
    },
    CrateRules {
        package: "bareverbs-arrows",
        directory: ".ci/architecture",
        knows: &[],
        layers: &[
            &["house", "mentions", "ratchet", "sources"],
            &["modules", "sizes"],
            &["resolve", "examples"],
            &["words"],
            &["arrows"],
            &["cycles", "rules"],
            &["draw"],
            &["main"],
        ],
        pure: &[],
        bans: &[],
    },
];
