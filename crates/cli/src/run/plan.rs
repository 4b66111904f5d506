//! Who is which rank, and with which variables it is started. torchrun's are all here, so that a script cannot tell the
//! difference; ours say where the keyed store is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::stores::Addresses;

/// The part of a world that this node starts, in one epoch.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The job's name.
    pub(super) job: String,
    /// How often the world was started before.
    pub(super) epoch: u32,
    pub(super) max_restarts: u32,
    /// Which node this is, and of how many.
    pub(super) node: usize,
    pub(super) nodes: usize,
    /// Ranks of this node, the first of them, and ranks of all nodes.
    pub(super) local_ranks: usize,
    pub(super) first_rank: usize,
    pub(super) ranks: usize,
    pub(super) addresses: Addresses,
    /// The descriptor on which a rank finds the job key.
    pub(super) key_descriptor: Option<i32>,
    pub(super) join_seconds: f64,
    pub(super) insecure: bool,
    /// Where ranks leave what they have to say about their end.
    pub(super) reports: PathBuf,
}

impl Plan {
    /// The number in the world of a rank of this node.
    pub(super) fn rank(&self, local_rank: usize) -> usize {
        self.first_rank + local_rank
    }

    /// The file where a rank leaves its report as PyTorch's programs do.
    pub(super) fn report(&self, local_rank: usize) -> PathBuf {
        self.directory(&self.reports, local_rank).join("error.json")
    }

    /// The file where ours leaves it, and whom it accuses: what PyTorch writes does not replace that.
    pub(super) fn own_report(&self, local_rank: usize) -> PathBuf {
        self.directory(&self.reports, local_rank).join("phalanx.json")
    }

    /// The place of a rank of this epoch under `root`.
    pub(super) fn directory(&self, root: &Path, local_rank: usize) -> PathBuf {
        root.join(self.epoch.to_string()).join(self.rank(local_rank).to_string())
    }

    /// The variables of one rank. `has` tells which are set already.
    pub(super) fn variables(&self, local_rank: usize, has: &dyn Fn(&str) -> bool) -> Vec<(&'static str, OsString)> {
        let mut variables = self.torchrun(local_rank);
        variables.extend(self.own(local_rank));
        // As torchrun does: ranks that share a machine must not each start a thread on every core.
        if self.local_ranks > 1 && !has("OMP_NUM_THREADS") {
            variables.push(("OMP_NUM_THREADS", "1".into()));
        }
        if !has("TORCH_NCCL_ASYNC_ERROR_HANDLING") {
            variables.push(("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1".into()));
        }
        variables
    }

    fn torchrun(&self, local_rank: usize) -> Vec<(&'static str, OsString)> {
        let (rank, ranks) = (self.rank(local_rank).to_string(), self.ranks.to_string());
        let text = |value: &dyn ToString| OsString::from(value.to_string());
        vec![
            ("RANK", text(&rank)),
            ("WORLD_SIZE", text(&ranks)),
            ("LOCAL_RANK", text(&local_rank)),
            ("LOCAL_WORLD_SIZE", text(&self.local_ranks)),
            ("GROUP_RANK", text(&self.node)),
            ("GROUP_WORLD_SIZE", text(&self.nodes)),
            ("ROLE_NAME", "default".into()),
            ("ROLE_RANK", text(&rank)),
            ("ROLE_WORLD_SIZE", text(&ranks)),
            ("MASTER_ADDR", text(&self.addresses.master.host)),
            ("MASTER_PORT", text(&self.addresses.master.port)),
            ("TORCHELASTIC_RUN_ID", text(&self.job)),
            ("TORCHELASTIC_RESTART_COUNT", text(&self.epoch)),
            ("TORCHELASTIC_MAX_RESTARTS", text(&self.max_restarts)),
            ("TORCHELASTIC_USE_AGENT_STORE", if self.addresses.master.is_ours { "True" } else { "False" }.into()),
            ("TORCHELASTIC_ERROR_FILE", self.report(local_rank).into()),
        ]
    }

    fn own(&self, local_rank: usize) -> Vec<(&'static str, OsString)> {
        let mut own = vec![
            ("PHALANX_STORE", OsString::from(&self.addresses.keyed)),
            ("PHALANX_JOB", OsString::from(&self.job)),
            ("PHALANX_EPOCH", self.epoch.to_string().into()),
            ("PHALANX_JOIN_TIMEOUT", self.join_seconds.to_string().into()),
            ("PHALANX_ERROR_FILE", self.own_report(local_rank).into()),
        ];
        own.extend(self.key_descriptor.map(|number| ("PHALANX_KEY_FD", number.to_string().into())));
        own.extend(self.insecure.then(|| ("PHALANX_INSECURE", OsString::from("1"))));
        own
    }
}

/// Variables that a rank must not inherit: how the launcher itself was given the key.
pub(super) const WITHHELD: [&str; 5] =
    ["PHALANX_KEY", "PHALANX_KEY_FILE", "PHALANX_KEY_FD", "PHALANX_STORE", "PHALANX_INSECURE"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::stores::Master;

    fn plan() -> Plan {
        Plan {
            job: "j".to_owned(),
            epoch: 1,
            max_restarts: 2,
            node: 1,
            nodes: 2,
            local_ranks: 3,
            first_rank: 4,
            ranks: 7,
            addresses: Addresses {
                keyed: "127.0.0.1:5".to_owned(),
                master: Master { host: "127.0.0.1".to_owned(), port: 6, is_ours: true },
            },
            key_descriptor: Some(100),
            join_seconds: 2.5,
            insecure: false,
            reports: PathBuf::from("reports"),
        }
    }

    fn value(plan: &Plan, name: &str, has: &dyn Fn(&str) -> bool) -> Option<String> {
        let variables = plan.variables(2, has);
        assert!(variables.iter().filter(|(named, _)| *named == name).count() <= 1, "{name} twice");
        variables.into_iter().find(|(named, _)| *named == name).map(|(_, value)| value.into_string().unwrap())
    }

    #[test]
    fn every_variable_has_its_value() {
        let expected = [
            ("RANK", "6"),
            ("WORLD_SIZE", "7"),
            ("LOCAL_RANK", "2"),
            ("LOCAL_WORLD_SIZE", "3"),
            ("GROUP_RANK", "1"),
            ("GROUP_WORLD_SIZE", "2"),
            ("ROLE_NAME", "default"),
            ("ROLE_RANK", "6"),
            ("ROLE_WORLD_SIZE", "7"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", "6"),
            ("TORCHELASTIC_RUN_ID", "j"),
            ("TORCHELASTIC_RESTART_COUNT", "1"),
            ("TORCHELASTIC_MAX_RESTARTS", "2"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_ERROR_FILE", "reports/1/6/error.json"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            ("OMP_NUM_THREADS", "1"),
            ("PHALANX_STORE", "127.0.0.1:5"),
            ("PHALANX_KEY_FD", "100"),
            ("PHALANX_JOB", "j"),
            ("PHALANX_EPOCH", "1"),
            ("PHALANX_JOIN_TIMEOUT", "2.5"),
            ("PHALANX_ERROR_FILE", "reports/1/6/phalanx.json"),
        ];
        let plan = plan();
        for (name, expected) in expected {
            assert_eq!(value(&plan, name, &|_| false).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(plan.variables(2, &|_| false).len(), expected.len());
    }

    #[test]
    fn what_the_user_has_set_stays() {
        let has = |name: &str| name == "OMP_NUM_THREADS" || name == "TORCH_NCCL_ASYNC_ERROR_HANDLING";
        assert_eq!(value(&plan(), "OMP_NUM_THREADS", &has), None);
        assert_eq!(value(&plan(), "TORCH_NCCL_ASYNC_ERROR_HANDLING", &has), None);
        assert_eq!(value(&Plan { local_ranks: 1, ..plan() }, "OMP_NUM_THREADS", &|_| false), None);
    }
}
