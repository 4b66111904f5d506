//! The settings of PyTorch's process group, by their names, as options, and the one of NCCL's own that would overrule what groups need. Reading the
//! environment is the front's business: this is told what stands there.

use std::time::Duration;

use phalanx_core::{Error, Result};

use super::options::NcclOptions;

/// What a program does with a setting of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// It changes the options.
    Taken,
    /// It is what this group does anyway, whatever the value.
    Always,
    /// It is for something that this group does in another way, or has not; docs/nccl.md says which.
    Ignored,
}

/// The settings that are known, and what becomes of each.
pub const SETTINGS: [(&str, Effect); 19] = [
    ("TORCH_NCCL_HIGH_PRIORITY", Effect::Taken),
    ("TORCH_NCCL_ENABLE_TIMING", Effect::Taken),
    ("TORCH_DISTRIBUTED_DEBUG", Effect::Taken),
    ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", Effect::Taken),
    ("TORCH_NCCL_COORD_CHECK_MILSEC", Effect::Taken),
    ("TORCH_NCCL_DESYNC_DEBUG", Effect::Always),
    ("TORCH_NCCL_USE_COMM_NONBLOCKING", Effect::Always),
    ("TORCH_NCCL_AVOID_RECORD_STREAMS", Effect::Always),
    ("TORCH_NCCL_ENABLE_MONITORING", Effect::Always),
    ("TORCH_NCCL_RETHROW_CUDA_ERRORS", Effect::Always),
    ("TORCH_NCCL_BLOCKING_WAIT", Effect::Ignored),
    ("TORCH_NCCL_ASYNC_ERROR_HANDLING", Effect::Ignored),
    ("TORCH_NCCL_NONBLOCKING_TIMEOUT", Effect::Ignored),
    ("TORCH_NCCL_DUMP_ON_TIMEOUT", Effect::Ignored),
    ("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", Effect::Ignored),
    ("TORCH_NCCL_TRACE_BUFFER_SIZE", Effect::Ignored),
    ("TORCH_NCCL_NAN_CHECK", Effect::Taken),
    ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", Effect::Ignored),
    ("NCCL_COMM_BLOCKING", Effect::Taken),
];

impl NcclOptions {
    /// The same with a setting, and what became of that. Names that are not among [`SETTINGS`] are ignored.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a value that the setting cannot have.
    pub fn setting(self, name: &str, value: &str) -> Result<(NcclOptions, Effect)> {
        let Some((known, effect)) = SETTINGS.into_iter().find(|(known, _)| *known == name) else {
            return Ok((self, Effect::Ignored));
        };
        let options = match known {
            "TORCH_NCCL_HIGH_PRIORITY" => self.high_priority(flag(known, value)?),
            "TORCH_NCCL_ENABLE_TIMING" => self.timing(flag(known, value)?),
            "TORCH_NCCL_NAN_CHECK" => self.check_nan(flag(known, value)?),
            "TORCH_DISTRIBUTED_DEBUG" => self.strict(is_detail(known, value)?),
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC" => self.unresponsive(Duration::from_secs(count(known, value)?)),
            "TORCH_NCCL_COORD_CHECK_MILSEC" => self.heartbeat(Duration::from_millis(count(known, value)?)),
            // The library reads it itself, and lets it overrule what a communicator is made with.
            "NCCL_COMM_BLOCKING" => NcclOptions { blocks: value.trim().parse::<i64>() == Ok(1), ..self },
            "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK" if flag(known, value)? => {
                let expected = "must be 0: nothing hooks an allocator here, DeviceGroup::register makes memory known";
                return Err(Error::usage("settings", known, format!("{value:?}"), expected));
            }
            _ => self,
        };
        Ok((options, effect))
    }
}

/// PyTorch's words for yes and no.
fn flag(name: &'static str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "t" | "true" | "on" => Ok(true),
        "0" | "n" | "no" | "f" | "false" | "off" => Ok(false),
        _ => Err(Error::usage("settings", name, format!("{value:?}"), "must be 1 or 0")),
    }
}

/// PyTorch's levels of checking, the highest of which compares before each operation.
fn is_detail(name: &'static str, value: &str) -> Result<bool> {
    match value {
        "DETAIL" => Ok(true),
        "OFF" | "INFO" => Ok(false),
        _ => Err(Error::usage("settings", name, format!("{value:?}"), "must be OFF, INFO or DETAIL")),
    }
}

fn count(name: &'static str, value: &str) -> Result<u64> {
    let count = value.parse().ok().filter(|count| (1..=u64::from(u32::MAX)).contains(count));
    count.ok_or_else(|| Error::usage("settings", name, format!("{value:?}"), "must be a whole number above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_options_or_are_refused() {
        let set = |name: &str, value: &str| NcclOptions::default().setting(name, value);
        let (options, effect) = set("TORCH_NCCL_COORD_CHECK_MILSEC", "40").expect("a number");
        assert_eq!((options.heartbeat, effect), (Duration::from_millis(40), Effect::Taken));
        assert!(set("TORCH_NCCL_HIGH_PRIORITY", "Yes").expect("a flag").0.is_high_priority);
        assert!(!set("TORCH_NCCL_HIGH_PRIORITY", "off").expect("a flag").0.is_high_priority);
        assert!(set("TORCH_NCCL_NAN_CHECK", "1").expect("a flag").0.needs_nan_check());
        let refused = set("TORCH_NCCL_ENABLE_TIMING", "maybe").expect_err("no flag").to_string();
        assert_eq!(refused, "settings: TORCH_NCCL_ENABLE_TIMING is \"maybe\", must be 1 or 0");
        for bad in ["", "-1", "0", "1.5", "99999999999"] {
            assert!(set("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", bad).is_err(), "{bad}");
        }
        assert!(set("TORCH_DISTRIBUTED_DEBUG", "DETAIL").expect("a level").0.is_strict);
        assert!(set("TORCH_DISTRIBUTED_DEBUG", "detail").is_err());
        let hook = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK";
        assert_eq!(set(hook, "0").expect("a flag").1, Effect::Ignored);
        assert!(set(hook, "1").expect_err("no hook").to_string().contains("DeviceGroup::register"));
        assert_eq!(set("TORCH_NCCL_BLOCKING_WAIT", "1").expect("known").1, Effect::Ignored);
        assert_eq!(set("NCCL_DEBUG", "INFO").expect("not ours").1, Effect::Ignored);
        for (value, blocks) in [("1", true), (" 1", true), ("0", false), ("", false), ("yes", false)] {
            assert_eq!(set("NCCL_COMM_BLOCKING", value).expect("known").0.blocks, blocks, "{value:?}");
        }
    }
}
