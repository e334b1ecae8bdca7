//! Extracts the instructions of one function from a clang object file. Features that a program may not use are refused
//! by name.

use anyhow::{Result, anyhow, bail};
use object::{
    Architecture, BinaryFormat, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind,
    SymbolKind,
};

/// The instructions in `bytes`: for an ELF object the code of its only function, otherwise the bytes
/// unchanged.
pub(crate) fn load(bytes: &[u8], section: Option<&str>) -> Result<Vec<u8>> {
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(bytes.to_vec());
    }
    let file = object::File::parse(bytes).map_err(|error| anyhow!("the object cannot be read: {error}"))?;
    if file.format() != BinaryFormat::Elf || file.architecture() != Architecture::Bpf {
        bail!("the object is for {:?}: compile with `clang -target bpf -mcpu=v3`", file.architecture());
    }
    if !file.is_little_endian() {
        bail!("the object is big-endian: compile with `clang -target bpfel`");
    }
    let code = code_section(&file, section)?;
    refuse_relocations(&file, &code)?;
    refuse_several_functions(&file, &code)?;
    Ok(code.data().map_err(|error| anyhow!("its code cannot be read: {error}"))?.to_vec())
}

fn code_section<'data, 'file>(
    file: &'file object::File<'data>,
    wanted: Option<&str>,
) -> Result<object::Section<'data, 'file>> {
    let code =
        |section: &object::Section<'data, 'file>| section.kind() == SectionKind::Text && section.size() > 0;
    let names = || -> Vec<String> {
        file.sections().filter(code).filter_map(|section| section.name().ok().map(str::to_owned)).collect()
    };
    if let Some(wanted) = wanted {
        let found = file.sections().filter(code).find(|section| section.name() == Ok(wanted));
        return found.ok_or_else(|| anyhow!("it has no code in section {wanted}; it has {:?}", names()));
    }
    let mut sections = file.sections().filter(code);
    match (sections.next(), sections.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => bail!("it has no code"),
        _ => bail!("it has code in several sections, choose one with --section: {:?}", names()),
    }
}

fn refuse_relocations(file: &object::File<'_>, code: &object::Section<'_, '_>) -> Result<()> {
    let Some((offset, relocation)) = code.relocations().next() else { return Ok(()) };
    let name = match relocation.target() {
        RelocationTarget::Symbol(index) => {
            file.symbol_by_index(index).ok().and_then(|symbol| symbol.name().ok().map(str::to_owned))
        }
        _ => None,
    };
    bail!(
        "instruction {} refers to {}: programs have no variables outside of their function, no maps, and call no \
         functions; mark functions `static inline` with __attribute__((always_inline)), and keep data in the state",
        offset / 8,
        name.as_deref().filter(|name| !name.is_empty()).unwrap_or("something outside of its function")
    )
}

/// A program begins where its section begins. With two functions it would silently be the first.
fn refuse_several_functions(file: &object::File<'_>, code: &object::Section<'_, '_>) -> Result<()> {
    let functions: Vec<_> = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.section_index() == Some(code.index()))
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    if functions.len() > 1 {
        bail!("its section has several functions, but a program is one function: {functions:?}");
    }
    Ok(())
}
