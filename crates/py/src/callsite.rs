//! Where a Python program calls an operation: the line of its own code, above this package's and PyTorch's, which say nothing to its author.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx::{OpKind, Place, Site};
use pyo3::sync::PyOnceLock;
use pyo3::types::PyAnyMethods;
use pyo3::{Bound, Py, PyAny, PyResult, Python, intern, pyfunction};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

/// Passes over code of files whose names begin with `prefix` when a call's place is looked for.
#[pyfunction]
pub(crate) fn pass_over(prefix: String) {
    let mut atlas = atlas();
    atlas.passed_over.push(prefix);
    let stale = std::mem::take(&mut atlas.codes);
    drop(atlas);
    // Not under the lock: what is let go of may run code of the program.
    drop(stale);
}

/// The innermost place on this thread's stack that is not passed over, or the outermost where all are. `way` tells ways into this library
/// apart that have other depths.
///
/// To look at a frame of Python costs 150 ns, and an operation may come through six. So the place is first looked for at the depth where it was
/// by the same way before, below a frame that is passed over: an exact answer but where the program is called back by what it called.
pub(crate) fn of_caller(py: Python<'_>, way: OpKind) -> Option<Site> {
    DEPTHS.with(|depths| {
        let known = &depths[way as usize % WAYS];
        let again = search(py, known.get().saturating_sub(1)).ok().flatten().filter(|(_, depth)| *depth == known.get());
        let (site, depth) = again.or_else(|| search(py, 0).ok().flatten())?;
        known.set(depth);
        Some(site)
    })
}

/// The first place from this depth on, frame by frame, and at which depth it is.
fn search(py: Python<'_>, from: usize) -> PyResult<Option<(Site, usize)>> {
    let mut frame = frame(py, from)?;
    for depth in from..DEEPEST {
        let code = frame.getattr(intern!(py, "f_code"))?;
        let back = if is_passed_over(&code)? { Some(frame.getattr(intern!(py, "f_back"))?) } else { None };
        match back.filter(|back| !back.is_none()) {
            Some(back) => frame = back,
            None => return Ok(site(&frame, &code)?.map(|site| (site, depth))),
        }
    }
    Ok(None)
}

/// What is known of the code that was seen. It is locked for looks and notes alone: Python, while it is asked for anything, may run code
/// that calls operations.
struct Atlas {
    passed_over: Vec<String>,
    /// By the address of the code.
    codes: FxHashMap<usize, Known>,
    /// They are kept for as long as the process lives: an operation is told of after its program may have forgotten the code.
    places: FxHashSet<&'static Place>,
}

struct Known {
    is_passed_over: bool,
    /// By the number of the instruction, because the line is looked for in a table from its begin.
    places: Vec<(i32, &'static Place)>,
    /// As long as it is here, no other code has its address.
    _code: Py<PyAny>,
}

static ATLAS: Mutex<Atlas> = Mutex::new(Atlas {
    passed_over: Vec::new(),
    codes: FxHashMap::with_hasher(FxBuildHasher),
    places: FxHashSet::with_hasher(FxBuildHasher),
});

thread_local! {
    /// The depths at which the place was by each way.
    static DEPTHS: [Cell<usize>; WAYS] = const { [const { Cell::new(0) }; WAYS] };
}

fn atlas() -> MutexGuard<'static, Atlas> {
    ATLAS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The frame of Python at this depth above the one that called into this library.
fn frame(py: Python<'_>, depth: usize) -> PyResult<Bound<'_, PyAny>> {
    static GET_FRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GET_FRAME.import(py, "sys", "_getframe")?.call1((depth,))
}

fn is_passed_over(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let address = code.as_ptr() as usize;
    if let Some(known) = atlas().codes.get(&address) {
        return Ok(known.is_passed_over);
    }
    let file: String = code.getattr("co_filename")?.extract()?;
    let mut atlas = atlas();
    let is_passed_over = atlas.passed_over.iter().any(|prefix| file.starts_with(prefix));
    // A program that makes code without end does not fill the memory.
    let stale = if atlas.codes.len() < MOST { None } else { Some(std::mem::take(&mut atlas.codes)) };
    atlas.codes.insert(address, Known { is_passed_over, places: Vec::new(), _code: code.clone().unbind() });
    drop(atlas);
    drop(stale);
    Ok(is_passed_over)
}

/// The place where `frame` is in `code`; none where there are too many already.
fn site(frame: &Bound<'_, PyAny>, code: &Bound<'_, PyAny>) -> PyResult<Option<Site>> {
    let address = code.as_ptr() as usize;
    let instruction: i32 = frame.getattr(intern!(frame.py(), "f_lasti"))?.extract()?;
    let known = |atlas: &Atlas| atlas.codes.get(&address)?.places.iter().find(|(at, _)| *at == instruction).copied();
    if let Some((_, place)) = known(&atlas()) {
        return Ok(Some(Site::Foreign(place)));
    }
    let line = frame.getattr("f_lineno")?.extract().unwrap_or(0);
    let place =
        Place { file: code.getattr("co_filename")?.extract()?, line, function: code.getattr("co_name")?.extract()? };
    let mut atlas = atlas();
    let kept = atlas.places.get(&place).copied();
    let Some(place) = kept.or_else(|| (atlas.places.len() < MOST).then(|| &*Box::leak(Box::new(place)))) else {
        return Ok(None);
    };
    atlas.places.insert(place);
    if let Some(known) = atlas.codes.get_mut(&address) {
        known.places.push((instruction, place));
    }
    Ok(Some(Site::Foreign(place)))
}

/// How many frames are looked at: models within models, each with PyTorch's hooks, have some dozens.
const DEEPEST: usize = 256;
const WAYS: usize = 16;
/// How many codes and places are kept.
const MOST: usize = 4096;
