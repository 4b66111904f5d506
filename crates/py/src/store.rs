//! Stores as Python sees them: a client of any server that speaks PyTorch's words or ours, and a server of our own.

use std::time::Duration;

use phalanx::{JobKey, Store as Handle, StoreError, settings};
use phalanx_comm::store::{ClientOptions, ServerOptions, StoreAddress, StoreServer, TcpStore};
use pyo3::exceptions::PyValueError;
use pyo3::types::PyBytes;
use pyo3::{Bound, Py, PyErr, PyResult, Python, pyclass, pymethods};

use crate::failure::{raised, raised_by_server, raised_by_store};
use crate::served::Served;

/// A client of a store. Calls from several threads do not wait for each other.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct Store(pub(crate) Handle);

/// A store that this process serves to others, until it is closed.
#[pyclass(frozen, weakref, module = "phalanx._native")]
pub(crate) struct StoreHost {
    server: Served,
    port: u16,
}

#[pymethods]
impl Store {
    /// Reaches the server at `host` and `port`, which may come up later than this call as long as its time allows. Without a key that is one of
    /// this machine, unless it may be `insecure`.
    #[new]
    #[pyo3(signature = (host, port, millis, key=None, insecure=false))]
    fn new(py: Python<'_>, host: &str, port: u16, millis: u64, key: Option<&str>, insecure: bool) -> PyResult<Store> {
        let options = ClientOptions::new(StoreAddress::tcp(host, port)).insecure(is_bare(py, host, key, insecure)?);
        let options = options.timeout(Duration::from_millis(millis));
        let options = job_key(py, key)?.into_iter().fold(options, ClientOptions::key);
        answered(py, || TcpStore::connect(options)).map(|home| Store(Handle::new(home)))
    }

    fn set(&self, py: Python<'_>, key: &str, value: &[u8], millis: u64) -> PyResult<()> {
        answered(py, || self.within(millis).set(key, value))
    }

    fn get<'py>(&self, py: Python<'py>, key: &str, millis: u64) -> PyResult<Bound<'py, PyBytes>> {
        answered(py, || self.within(millis).get(key)).map(|value| PyBytes::new(py, &value))
    }

    fn add(&self, py: Python<'_>, key: &str, delta: i64, millis: u64) -> PyResult<i64> {
        answered(py, || self.within(millis).add(key, delta))
    }

    fn compare_set<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        expected: &[u8],
        desired: &[u8],
        millis: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        answered(py, || self.within(millis).compare_set(key, expected, desired)).map(|value| PyBytes::new(py, &value))
    }

    fn delete(&self, py: Python<'_>, key: &str, millis: u64) -> PyResult<bool> {
        answered(py, || self.within(millis).delete(key))
    }

    fn append(&self, py: Python<'_>, key: &str, value: &[u8], millis: u64) -> PyResult<()> {
        answered(py, || self.within(millis).append(key, value))
    }

    fn check(&self, py: Python<'_>, keys: Vec<String>, millis: u64) -> PyResult<bool> {
        answered(py, || self.within(millis).check(&names(&keys)))
    }

    fn wait(&self, py: Python<'_>, keys: Vec<String>, millis: u64) -> PyResult<()> {
        answered(py, || self.within(millis).wait(&names(&keys)))
    }

    fn multi_get(&self, py: Python<'_>, keys: Vec<String>, millis: u64) -> PyResult<Vec<Py<PyBytes>>> {
        let values = answered(py, || self.within(millis).multi_get(&names(&keys)))?;
        Ok(values.iter().map(|value| PyBytes::new(py, value).unbind()).collect())
    }

    fn multi_set(&self, py: Python<'_>, keys: Vec<String>, values: Vec<Vec<u8>>, millis: u64) -> PyResult<()> {
        let pairs: Vec<_> = keys.iter().map(String::as_str).zip(values.iter().map(Vec::as_slice)).collect();
        answered(py, || self.within(millis).multi_set(&pairs))
    }

    fn num_keys(&self, py: Python<'_>, millis: u64) -> PyResult<u64> {
        answered(py, || self.within(millis).num_keys())
    }

    fn list_keys(&self, py: Python<'_>, millis: u64) -> PyResult<Vec<String>> {
        answered(py, || self.within(millis).list_keys())
    }

    fn push(&self, py: Python<'_>, key: &str, value: &[u8], millis: u64) -> PyResult<()> {
        answered(py, || self.within(millis).push(key, value))
    }

    /// The head of a queue, for which a time is waited unless told not to.
    fn pop<'py>(&self, py: Python<'py>, key: &str, wait: bool, millis: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let store = self.within(millis);
        let value = answered(py, || if wait { store.pop(key).map(Some) } else { store.try_pop(key) })?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn queue_len(&self, py: Python<'_>, key: &str, millis: u64) -> PyResult<u64> {
        answered(py, || self.within(millis).queue_len(key))
    }
}

impl Store {
    fn within(&self, millis: u64) -> Handle {
        self.0.with_timeout(Duration::from_millis(millis))
    }
}

#[pymethods]
impl StoreHost {
    /// Serves a store at `host` and `port`; port 0 takes a free one. With a key only those who prove it are served, without one this machine, or
    /// everybody who reaches the address where it may be `insecure`.
    #[new]
    #[pyo3(signature = (host, port, key=None, insecure=false))]
    fn new(py: Python<'_>, host: &str, port: u16, key: Option<&str>, insecure: bool) -> PyResult<StoreHost> {
        let options = ServerOptions::new(StoreAddress::tcp(host, port)).insecure(is_bare(py, host, key, insecure)?);
        let options = job_key(py, key)?.into_iter().fold(options, ServerOptions::key);
        let server = py.detach(|| StoreServer::start(options)).map_err(|error| raised_by_server(py, &error))?;
        let port = if let StoreAddress::Tcp { port, .. } = server.address() { *port } else { port };
        Ok(StoreHost { server: Served::new(server), port })
    }

    #[getter]
    fn port(&self) -> u16 {
        self.port
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.server.close());
    }
}

fn answered<T: Send>(py: Python<'_>, ask: impl FnOnce() -> Result<T, StoreError> + Send) -> PyResult<T> {
    py.detach(ask).map_err(|error| raised_by_store(py, &error))
}

/// Whether a store at `host` does without a key although others than this machine reach it, which nobody does who has not said so.
fn is_bare(py: Python<'_>, host: &str, key: Option<&str>, insecure: bool) -> PyResult<bool> {
    if key.is_some() || StoreAddress::tcp(host, 0).is_local() {
        return Ok(false);
    }
    if insecure || settings::insecure().map_err(|error| raised(py, &error, 0))? {
        return Ok(true);
    }
    Err(PyValueError::new_err(format!(
        "phalanx: TCPStore: host_name is {host}, must be a loopback address or localhost where key is None: give key=, or say insecure=True or PHALANX_INSECURE=1, by which whoever reaches the store may read and change everything"
    )))
}

fn job_key(py: Python<'_>, digits: Option<&str>) -> PyResult<Option<JobKey>> {
    let key = digits.map(JobKey::from_hex).transpose();
    key.map_err(|error| -> PyErr { raised(py, &phalanx::Error::setup("key of the store", error), 0) })
}

fn names(keys: &[String]) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}
