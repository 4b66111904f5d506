//! Every rank holds everything: gradients are averaged in buckets.

use std::time::Duration;

use burn::module::Module;
use burn::tensor::TensorData;
use burn_optim::GradientsParams;
use phalanx_core::{Error, Group, Result};
use phalanx_fsdp::{Ddp as Buckets, DdpOptions, Groups, ParamSpec, refuse};

use crate::values;
use crate::walk::{self, Parameter, Survey};

/// Training with a whole model on each rank: data parallelism.
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use burn_nn::LinearConfig;
/// use burn_optim::{AdamWConfig, GradientsParams};
/// use phalanx_burn::Ddp;
/// use phalanx_comm::Threads;
///
/// let weights = Threads::new(2).run(|group| {
///     let device = Device::flex().autodiff();
///     let (mut ddp, mut model) = Ddp::new(group, LinearConfig::new(8, 1).init(&device))?;
///     let mut optimizer = AdamWConfig::new().init();
///     for _step in 0..3 {
///         let x = Tensor::<2>::random([16, 8], Distribution::Default, &device);
///         let loss = model.forward(x).powf_scalar(2.0).mean();
///         let gradients = GradientsParams::from_grads(loss.backward(), &model);
///         let gradients = ddp.average(&model, gradients)?;
///         model = optimizer.step(1e-3, model, gradients);
///     }
///     Ok::<_, phalanx_core::Error>(model.weight.to_data())
/// })?;
/// assert_eq!(weights[0], weights[1]);
/// # Ok::<(), phalanx_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Ddp {
    parameters: Vec<Parameter>,
    buckets: Buckets,
}

impl Ddp {
    /// Makes a model the same on all ranks, which is the first rank's, running averages and all. All ranks call this: what they say of the
    /// model is compared, also of what is not trained. Gradients are averaged in `f32`, and those of `f64` parameters in that.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a model without trained parameters or with one that stands there twice;
    /// [`Desync`](phalanx_core::ErrorKind::Desync) on all ranks where they do not say the same; those of the broadcasts.
    pub fn new<M: Module>(group: Group, model: M) -> Result<(Ddp, M)> {
        Ddp::with_options(group, model, DdpOptions::default())
    }

    /// The same, and how gradients travel together. Unless the options [say otherwise](DdpOptions::allow_unused), every trained parameter
    /// has a gradient each time.
    ///
    /// # Errors
    ///
    /// As [`new`](Ddp::new).
    pub fn with_options<M: Module>(group: Group, model: M, options: DdpOptions) -> Result<(Ddp, M)> {
        let survey = surveyed(&model).map_err(|error| refuse(&Groups::new(group.clone()), error))?;
        let parameters: Vec<Parameter> = survey.parameters.iter().filter(|one| one.is_trained).cloned().collect();
        let averaged = |one: &Parameter| ParamSpec::new(&one.name, &one.shape, values::averaged_type(one));
        // What ranks have is sent as it is, where bytes of another shape or type would be taken as well.
        let sent = |one: &Parameter| match one.is_trained {
            true => values::told(&format!("{} as it is computed with", one.name), one).trainable(false),
            false => values::told(&one.name, one).trainable(false),
        };
        let kept = |one: &Parameter| values::told(&one.name, one).ignored();
        let trained = parameters.iter().map(averaged);
        let untrained = survey.parameters.iter().map(sent).chain(survey.others.iter().map(kept));
        let specs: Vec<ParamSpec> = trained.chain(untrained).collect();
        let buckets = Buckets::of_model(group.clone(), &specs, options)?;
        let model = walk::share(model, &[], &mut |bytes| group.broadcast(bytes, 0))?;
        let model = walk::tracked(model, &parameters);
        Ok((Ddp { parameters, buckets }, model))
    }

    /// Averages gradients over all ranks, each of which brings its own of the same model. Those of several micro-batches are summed up
    /// before, by burn's `GradientsAccumulator`.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where a parameter has no gradient, or a gradient is of no parameter that the model has had from
    /// the beginning; those of the reductions. Nothing is left of what was brought. The other ranks are not told of a gradient that is missing on
    /// this one alone: they wait for what it brings next.
    pub fn average<M: Module>(&mut self, model: &M, mut gradients: GradientsParams) -> Result<GradientsParams> {
        let own = walk::read_gradients(model, &self.parameters, &mut gradients)?;
        if !gradients.is_empty() {
            let value = format!("{} of other parameters", gradients.len());
            return Err(Error::usage("average", "gradients", value, "must be of the model that Ddp was made of"));
        }
        // What came of them would be there a second time when the next come.
        self.bring(own).inspect_err(|_| self.buckets.zero_gradients())?;
        walk::write_gradients(model, &self.parameters, |at| values::averaged(&self.buckets, at, &self.parameters[at]))
    }

    /// The engine, for communication hooks. It takes none where a parameter is of `f64`, whose gradients are averaged in that.
    pub fn engine(&mut self) -> &mut Buckets {
        &mut self.buckets
    }

    /// How long this rank has waited for others so far.
    pub fn waited(&self) -> Duration {
        self.buckets.waited()
    }

    /// Brings gradients, the last first, and waits for their average.
    fn bring(&mut self, own: Vec<(usize, TensorData)>) -> Result<()> {
        for (at, data) in own.into_iter().rev() {
            values::average(&mut self.buckets, at, &data)?;
        }
        self.buckets.finish_backward()
    }
}

/// What a model consists of that can be trained like this.
fn surveyed<M: Module>(model: &M) -> Result<Survey> {
    let survey = walk::survey(model);
    let is_trained = survey.parameters.iter().any(|one| one.is_trained);
    if let Some(name) = survey.plain.as_ref().filter(|_| is_trained) {
        let value = format!("{name:?} on a device without it");
        let expected = "must be on devices with autodiff (Device::autodiff), what is frozen too";
        return Err(Error::usage("Ddp::new", "model", value, expected));
    }
    // Each place has a gradient of its own, of which burn keeps one under the parameter's id, and steps in one place.
    if let Some((first, second)) = &survey.twice {
        let value = format!("{second:?}, which is {first:?} once more");
        let expected = "must have each trained parameter once: use one module twice, or FullyShard, which adds the gradients of both";
        return Err(Error::usage("Ddp::new", "model", value, expected));
    }
    if !is_trained {
        let expected = "must be on a device with autodiff (Device::autodiff) and not be frozen";
        return Err(Error::usage("Ddp::new", "model", "no trained parameter", expected));
    }
    Ok(survey)
}
