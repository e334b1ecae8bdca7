//! What `ibv_devinfo -v` prints, field by field.

use crate::installation::{HostedProgram, Installation, printed_fields};
use anyhow::{Context, Result, ensure};
use bareverbs_sim::nic::NicConfig;
use bareverbs_uverbs::VirtualHost;

/// Compares what `ibv_devinfo -v` prints with the configuration of the device.
pub fn judge(installation: &Installation) -> Result<()> {
    let host = VirtualHost::new("a").context("a name")?;
    let command = vec!["ibv_devinfo".into(), "-v".into()];
    let ended = installation.run(&HostedProgram { host: host.name().into(), command }, &[])?;
    let printed = printed_fields(&ended.said);
    for (name, value) in expected(&host) {
        let got = printed.get(name).map(String::as_str).unwrap_or("nothing");
        ensure!(got == value, "{name} is {got}, and should be {value}");
    }
    Ok(())
}

fn expected(host: &VirtualHost) -> Vec<(&'static str, String)> {
    let NicConfig { limits, firmware_revision: [major, minor, subminor], device_id, .. } = host.nic_config(0);
    let [a, b, c, d] = host.ipv4();
    vec![
        ("hca_id", "mlx5_0".into()),
        ("transport", "InfiniBand (0)".into()),
        ("fw_ver", format!("{major}.{minor}.{subminor}")),
        ("vendor_id", "0x02c9".into()),
        ("vendor_part_id", device_id.to_string()),
        ("phys_port_cnt", "1".into()),
        ("max_qp", (1_u32 << limits.log_max_qp).to_string()),
        ("max_qp_wr", (1_u32 << limits.log_max_qp_size).to_string()),
        ("max_cq", (1_u32 << limits.log_max_cq).to_string()),
        ("max_cqe", ((1_u32 << limits.log_max_cq_size) - 1).to_string()),
        ("max_mr", (1_u32 << limits.log_max_mkey).to_string()),
        ("max_pd", (1_u32 << limits.log_max_pd).to_string()),
        ("max_qp_rd_atom", (1_u32 << limits.log_max_initiator_depth).to_string()),
        ("max_qp_init_rd_atom", (1_u32 << limits.log_max_responder_resources).to_string()),
        ("atomic_cap", "ATOMIC_HCA (1)".into()),
        ("hca_core_clock", "1000000kHZ".into()),
        ("port", "1".into()),
        ("state", "PORT_ACTIVE (4)".into()),
        ("max_mtu", "4096 (5)".into()),
        ("active_mtu", "4096 (5)".into()),
        ("link_layer", "Ethernet".into()),
        ("max_msg_sz", format!("{:#x}", 1_u64 << limits.log_max_message)),
        ("gid_tbl_len", limits.roce_addresses.to_string()),
        ("active_width", "4X (2)".into()),
        ("active_speed", "25.0 Gbps (32)".into()),
        ("phys_state", "LINK_UP (5)".into()),
        ("GID[  0]", format!("::ffff:{a}.{b}.{c}.{d}, RoCE v2")),
    ]
}
