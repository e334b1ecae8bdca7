use super::*;

fn names_of(what: &str) -> Vec<&'static str> {
    explain(what).iter().map(|row| row.name).collect()
}

#[test]
fn every_status_of_the_device_is_explained() {
    assert_eq!(unexplained(), [""; 0]);
}

#[test]
fn every_finding_and_every_counter_is_explained() {
    for rule in RULES {
        assert_eq!(names_of(rule.id), [rule.id]);
    }
    for known in KNOWN {
        assert_eq!(names_of(known.name), [known.name]);
    }
    assert_eq!(names_of("rx_prio3_pause"), ["rx_prioN_pause"]);
}

/// In the form that `kernel run`, `dpu` and `demo` print.
#[test]
fn every_status_of_a_lookup_is_explained_as_it_is_printed() {
    use bareverbs_offload::status::Status;
    let known = (0..=u8::MAX).map(Status::from_number).filter(|status| !matches!(status, Status::Unknown(_)));
    for status in known {
        let (_, entry) =
            outcomes::LOOKUPS.iter().find(|(of, _)| *of == status).expect("a row for each status");
        assert_eq!(names_of(entry.names[0]), [entry.names[0]]);
        for line in [status.to_string(), format!("no answer: {status}")] {
            assert!(status == Status::Ok || names_of(&line) == [entry.names[0]], "{line}");
        }
    }
    assert!(names_of("the file was not found").is_empty(), "an unrelated sentence");
}

/// In the form that `kernel check`, `kernel run` and `dpu` print.
#[test]
fn every_fault_of_a_program_is_explained_as_it_is_printed() {
    use bareverbs_offload::program::{DeployError as Refused, Fault, Feature, Illegal};
    let instruction = 7;
    let illegal = |reason| Refused::Illegal { instruction, reason }.to_string();
    let printed = [
        Refused::Empty.to_string(),
        Refused::TooLong { instructions: 9999 }.to_string(),
        Refused::NotWhole { bytes: 9 }.to_string(),
        illegal(Illegal::Opcode(0x8a)),
        illegal(Illegal::Unsupported(Feature::ALL[0])),
        illegal(Illegal::ReservedField),
        illegal(Illegal::Register(12)),
        illegal(Illegal::CutConstant),
        illegal(Illegal::Helper(99)),
        Refused::FramePointer { instruction }.to_string(),
        Refused::JumpOutside { instruction, target: -1 }.to_string(),
        Refused::JumpIntoConstant { instruction, target: 3 }.to_string(),
        Refused::Shift { instruction, bits: 77 }.to_string(),
        Refused::DivisionByZero { instruction }.to_string(),
        Refused::StackOutside { instruction, offset: -1000, bytes: 8 }.to_string(),
        Refused::NoEnd { instruction }.to_string(),
        Fault::OutOfFuel { instruction }.to_string(),
        Fault::Outside { instruction, address: 1 << 32, bytes: 8, write: true }.to_string(),
        Fault::Verb { value: 0x99 }.to_string(),
        Fault::Unverified { instruction }.to_string(),
    ];
    assert_eq!(printed.len(), programs::PROGRAMS.len());
    for (line, program) in printed.iter().zip(programs::PROGRAMS) {
        assert_eq!(names_of(line), program.entry.names, "{line}");
    }
}

/// A tool's hint to use `explain` leads to an explanation.
#[test]
fn every_hint_leads_to_an_explanation() {
    let rows: Vec<Explanation> = everything().collect();
    let texts = rows.iter().flat_map(|row| [row.cause, row.compare, row.attempt]);
    let words = texts
        .flat_map(|text| text.split("bareverbs explain ").skip(1))
        .filter_map(|rest| rest.split([' ', ',', ';', ')']).next().filter(|word| word.contains(['_', '.'])));
    let hints: Vec<&str> = words.collect();
    assert!(hints.len() > 10, "{hints:?}");
    for hint in hints {
        assert!(!explain(hint).is_empty(), "{hint}");
    }
}

#[test]
fn every_exit_status_is_explained() {
    for number in [0, 1, 2, 130] {
        let name = format!("EXIT_{number}");
        for line in [
            format!("exit status {number}"),
            format!("Exit {number}"),
            format!("exit code {number}"),
            name.clone(),
        ] {
            assert_eq!(names_of(&line), [name.as_str()], "{line}");
        }
    }
    assert!(names_of("exit status 77").is_empty() && names_of("exit stage 2").is_empty());
}

/// The events that the driver reports, by the manual's names.
#[test]
fn every_event_of_the_driver_is_explained() {
    use bareverbs_prm::numbering::EventType;
    for row in EventType::INFO.rows.iter().filter(|row| row.value <= 0x14 && !matches!(row.value, 0xc..=0xf))
    {
        let found = explain(row.name);
        assert!(found.iter().any(|found| found.kind == "asynchronous event"), "{}: {found:?}", row.name);
    }
}

/// The checks of `bareverbs vfio check` have the doctor's IDs.
#[test]
fn every_check_of_a_function_is_explained() {
    use bareverbs_hal::pci::Check;
    let all = [Check::DeviceId, Check::Driver, Check::Iommu, Check::Group, Check::Permission];
    for check in all.into_iter().chain([Check::LockedMemory, Check::HugePages]) {
        let id = crate::vfio::id_of(check).expect("an id");
        assert_eq!(names_of(id), [id], "{check}");
    }
}

#[test]
fn numbers_and_names_lead_to_the_same_row() {
    let by_name = explain("ibv_wc_retry_exc_err");
    assert_eq!(by_name.len(), 1);
    for what in ["12", "0x15", "TRANSPORT_RETRY_EXC_ERR"] {
        assert!(explain(what).iter().any(|row| row.cause == by_name[0].cause), "{what}");
    }
    assert!(explain("0x81").iter().any(|row| row.kind == "vendor syndrome"));
    assert!(explain("no such thing").is_empty());
}

/// The driver's text for every failed completion and refused command leads to its own row, and to no other.
#[test]
fn output_of_the_library_is_parsed() {
    for row in CqeSyndrome::INFO.rows {
        let syndrome = CqeSyndrome::from_raw(row.value as u8);
        assert_eq!(names_of(&format!("{syndrome:?}")), [row.name]);
        let status = bareverbs_core::WorkCompletionStatus::Failed(syndrome);
        assert_eq!(names_of(&status.to_string()), [row.name], "{status}");
    }
    for row in CommandStatus::INFO.rows.iter().filter(|row| row.value != 0) {
        let printed = format!("{}", CommandStatus::from_raw(row.value as u8));
        assert!(names_of(&printed).contains(&row.name), "{printed}");
    }
    assert_eq!(names_of("REMOTE_ACCESS_ERR(0x13)"), ["REMOTE_ACCESS_ERR"]);
    assert_eq!(names_of("CQ_OVERRUN"), ["CQ_OVERRUN"]);
    assert_eq!(names_of("IBV_WC_SUCCESS"), ["IBV_WC_SUCCESS"]);
    assert_eq!(names_of("PORT_DOWN (1)"), ["PORT_DOWN"]);
    assert_eq!(names_of("ibv_modify_qp: EINVAL"), ["EINVAL"]);
    assert!(names_of("UNKNOWN(0x81)").contains(&"VENDOR_TIMEOUT"));
    assert_eq!(names_of("bad      gid.vlan: the peer 10.0.0.2 is in VLAN 7"), ["gid.vlan"]);
}

#[test]
fn a_misspelt_name_gets_the_nearest_known_names() {
    assert_eq!(near("IBV_WC_RETRY_EXEC_ERR")[0], "IBV_WC_RETRY_EXC_ERR");
    assert_eq!(near("out_of_sequnce")[0], "out_of_sequence");
    assert_eq!(near("gid.vlna")[0], "gid.vlan");
    assert!(unknown("EINVALL").ends_with("?") && unknown("EINVALL").contains("did you mean EINVAL"));
    assert!(unknown("zzz").contains("give a completion status"));
}

#[test]
fn ids_are_stable_and_unique() {
    let mut ids: Vec<String> = everything().map(|row| row.id).collect();
    for id in
        ["completion/IBV_WC_RETRY_EXC_ERR", "command/BAD_PARAM_ERR", "counter/out_of_sequence", "port.no-sm"]
    {
        assert!(ids.iter().any(|known| known == id), "{id}");
    }
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn every_id_leads_to_its_own_row_alone() {
    for id in everything().map(|row| row.id).chain(["simulator/0xb00070".to_owned()]) {
        let found: Vec<String> = explain(&id).into_iter().map(|row| row.id).collect();
        assert_eq!(found, [id]);
    }
}

#[test]
fn a_syndrome_of_the_simulated_firmware_is_known() {
    let rows = explain("0xb00070");
    assert_eq!((rows.len(), rows[0].name), (1, "BAD_QP_STATE_ERR"));
}

#[test]
fn every_explanation_has_all_its_texts() {
    for row in everything() {
        for text in [row.name, row.cause, row.compare, row.attempt] {
            assert!(!text.is_empty(), "{row:?}");
        }
    }
}
