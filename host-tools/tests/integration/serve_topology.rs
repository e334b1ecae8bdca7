//! `bareverbs serve --topology`: cards in the places of a site's hosts, behind the site's switches.

use crate::support;

use std::fs;
use std::path::Path;
use support::{Served, bareverbs, free_port, object_of, output_of, wait_for};

/// Two leaves at a spine, which has two cables to the second. `one` and `two` are far apart; `three` has no
/// card.
const SITE: &str = "\
switchguid=0x2c9000000010(2c9000000010)
Switch\t4 \"S-00002c9000000010\"\t\t# \"spine\" base port 0 lid 30 lmc 0
[1]\t\"S-00002c9000000020\"[2]\t\t# \"leaf one\" lid 31 4xEDR
[2]\t\"S-00002c9000000030\"[2]\t\t# \"leaf two\" lid 32 4xEDR
[3]\t\"S-00002c9000000030\"[3]\t\t# \"leaf two\" lid 32 4xEDR

switchguid=0x2c9000000020(2c9000000020)
Switch\t4 \"S-00002c9000000020\"\t\t# \"leaf one\" base port 0 lid 31 lmc 0
[1]\t\"H-00002c90000000a0\"[1](2c90000000a1) \t\t# \"one\" lid 7 4xEDR
[2]\t\"S-00002c9000000010\"[1]\t\t# \"spine\" lid 30 4xEDR

switchguid=0x2c9000000030(2c9000000030)
Switch\t4 \"S-00002c9000000030\"\t\t# \"leaf two\" base port 0 lid 32 lmc 0
[1]\t\"H-00002c90000000b0\"[1](2c90000000b1) \t\t# \"two\" lid 9 4xEDR
[2]\t\"S-00002c9000000010\"[2]\t\t# \"spine\" lid 30 4xEDR
[3]\t\"S-00002c9000000010\"[3]\t\t# \"spine\" lid 30 4xEDR
[4]\t\"H-00002c90000000c0\"[1](2c90000000c1) \t\t# \"three\" lid 8 4xEDR

caguid=0x2c90000000a0
Ca\t1 \"H-00002c90000000a0\"\t\t# \"one\"
[1](2c90000000a1) \t\"S-00002c9000000020\"[1]\t\t# lid 7 lmc 0 \"leaf one\" lid 31 4xEDR

caguid=0x2c90000000b0
Ca\t1 \"H-00002c90000000b0\"\t\t# \"two\"
[1](2c90000000b1) \t\"S-00002c9000000030\"[1]\t\t# lid 9 lmc 0 \"leaf two\" lid 32 4xEDR

caguid=0x2c90000000c0
Ca\t1 \"H-00002c90000000c0\"\t\t# \"three\"
[1](2c90000000c1) \t\"S-00002c9000000030\"[4]\t\t# lid 8 lmc 0 \"leaf two\" lid 32 4xEDR
";

fn site(directory: &Path) {
    fs::write(directory.join("site"), SITE).expect("a file");
}

/// The cards have GUIDs and LIDs of the site's hosts, and reach each other through three switches, by LID and by GID.
#[test]
fn cards_have_the_places_of_hosts_and_reach_each_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    site(here);
    let _served = Served::start(here, &["--socket", "other", "--topology", "site"]);
    wait_for(&here.join("other"), "the second device is not served");
    let port = free_port();
    let common = ["ping", "-c", "RC", "-p", &port, "--peer-timeout", "30"];
    let server = [&common[..], &["--device", "vfio-user:nic", "--server"]].concat();
    let server = bareverbs(here, &server).spawn().expect("the program");
    let client =
        [&common[..], &["-n", "20", "-i", "1", "--json", "--device", "vfio-user:other", "127.0.0.1"]];
    let client = output_of(here, &client.concat());
    let server = server.wait_with_output().expect("the program");
    assert!(server.status.success(), "{}", String::from_utf8_lossy(&server.stderr));
    let found = object_of("ping", &client);
    assert_eq!((&found["sent"], &found["received"]), (&20.into(), &20.into()));
    let places = [("nic", "00002c90000000a0", 7), ("other", "00002c90000000b0", 9)];
    // The manager assigns the LID after the device has started, so the test uses a tool that waits for it.
    let waiting = places.map(|(device, ..)| {
        let device = format!("vfio-user:{device}");
        let waiting = ["ping", "-c", "MAD", "--server", "--peer-timeout", "1", "--device", &device];
        bareverbs(here, &waiting).spawn().expect("the program")
    });
    for (waiting, (device, _, lid)) in waiting.into_iter().zip(places) {
        let output = waiting.wait_with_output().expect("the program");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("answering ibping at LID {lid}\n")), "{device}: {said}");
    }
    for (device, node, _) in places {
        let output = output_of(here, &["devinfo", "--json", "--device", &format!("vfio-user:{device}")]);
        let text = String::from_utf8_lossy(&output.stdout).replace(':', "");
        assert!(text.contains(&node[4..]), "{device}: {text}");
    }
}

#[test]
fn a_file_that_is_no_site_or_has_too_few_places_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    site(here);
    fs::write(here.join("torn"), SITE.replace("\"S-00002c9000000020\"[2]", "\"S-00002c9000000020\"["))
        .expect("a file");
    let refused = |words: &[&str], complaint: &str| {
        let output = output_of(here, &[&["serve", "--socket", "nic"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(complaint), "{words:?}: {said}");
    };
    refused(&["--topology", "none"], "cannot read the topology of none");
    refused(&["--topology", "torn"], "torn is not a topology as ibnetdiscover prints it");
    refused(
        &["--topology", "site", "--link", "eth"],
        "has 3 ports of hosts, but there are 0 InfiniBand ports",
    );
    let many = ["--socket", "b", "--socket", "c", "--socket", "d", "--topology", "site"];
    refused(&many, "has 3 ports of hosts, but there are 4 InfiniBand ports");
    refused(&["--topology", "site", "--wire", "w", "--wire-to", "x"], "--topology");
}
