//! A training as a job of simulated ranks. From the first step to the last the host waits for nothing but what it reads itself.

use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{DType, GroupOptions, Layout, Result};
use phalanx_fsdp::device::{DeviceGradient, DeviceGroups, DeviceSharded, Lent, Mistake};
use phalanx_fsdp::{Class, Offload, Policy, Then};
use phalanx_nccl::api::{Argument, Cuda, Grid, KernelId, Stream};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, PinnedBuffer, Stack};
use phalanx_nccl::kernels::SCALE;
use phalanx_nccl::sim::{self, SimCuda, SimNccl, SimProcess, SimRank, Simulation};

use crate::company::Company;
use crate::kernels::{self, BACKWARD, DESCEND, FORWARD, LOSS, code};
use crate::model::{AGAIN, BIAS, GAIN, WEIGHT};
use crate::seats::DEVICE;
use crate::train::{Outcome, Task, descend};

pub(crate) type Model = DeviceSharded<SimNccl, SimCuda, SimProcess>;
type Memory = DeviceBuffer<SimCuda>;
type Hook = Arc<dyn Fn(&mut Model, usize, usize) + Send + Sync>;
type Watch = Arc<dyn Fn(&Model, &Task) + Send + Sync>;

/// What is run.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) task: Task,
    pub(crate) company: Company,
    pub(crate) policy: Policy,
    pub(crate) mistake: Option<Mistake>,
    /// Whether gradients lie in memory of the program's own, which it drops as soon as it has handed them over.
    pub(crate) has_own_gradients: bool,
    /// Whether gradients are looked at and forgotten after every micro-batch but the last.
    pub(crate) peeks: bool,
    /// Whether the optimizer steps inside backward.
    pub(crate) steps_inside: bool,
    /// Whether the norm of each step is read after it, where gradients are clipped.
    pub(crate) reads_norms: bool,
    /// Whether reductions have a communicator of their own.
    pub(crate) reduces_apart: bool,
    /// Told of each micro-batch that is about to begin.
    pub(crate) before: Hook,
    /// Looks at the model after every event.
    pub(crate) watch: Watch,
}

/// What a rank's training gave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct End {
    pub(crate) losses: Vec<f64>,
    pub(crate) params: Vec<Vec<Vec<f32>>>,
    /// The norms that were read.
    pub(crate) norms: Vec<f64>,
    /// Allocations of each step, and how often the host waited.
    pub(crate) costs: Vec<[usize; 2]>,
}

impl Job {
    pub(crate) fn new(task: Task, company: Company, policy: Policy) -> Job {
        Job {
            task,
            company,
            policy,
            mistake: None,
            has_own_gradients: false,
            peeks: false,
            reads_norms: false,
            steps_inside: false,
            reduces_apart: false,
            before: Arc::new(|_, _, _| {}),
            watch: Arc::new(|_, _| {}),
        }
    }

    pub(crate) fn before(mut self, before: impl Fn(&mut Model, usize, usize) + Send + Sync + 'static) -> Job {
        self.before = Arc::new(before);
        self
    }

    pub(crate) fn run(&self, seed: u64) -> sim::Outcome<Result<End>> {
        let job = self.clone();
        kernels::known(Simulation::new(self.company.size(), seed), &self.task.blocks).run(move |rank| job.on(&rank))
    }

    /// One rank's part of it.
    pub(crate) fn on(&self, rank: &SimRank) -> Result<End> {
        // The model goes before the program's memory, once all is done that is on the streams.
        let mut seat = Rank::new(self, rank)?;
        seat.train()
    }

    /// Runs it, and that nothing was wrong with it on the way. The loss of each step, and full parameters at the end.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        let outcome = self.run(seed);
        crate::seats::clean(&outcome, seed);
        let ends: Vec<End> = outcome.results.into_iter().map(|end| end.expect("an end").expect("no error")).collect();
        let params = ends[0].params.clone();
        assert!(ends.iter().all(|end| end.params == params), "seed {seed}: ranks differ");
        let ranks = ends.len() as f64;
        let sum = |step: usize| ends.iter().map(|end| end.losses[step]).sum::<f64>() / ranks;
        Outcome { losses: (0..self.task.steps).map(sum).collect(), params }
    }

    /// The groups of a rank. Ranks of one replica follow each other.
    fn groups(&self, rank: &SimRank) -> Result<DeviceGroups<SimNccl, SimCuda, SimProcess>> {
        let Company { shards, replicas, smaller, .. } = self.company;
        let (replica, shard) = (rank.rank / shards, rank.rank % shards);
        let group = |scope: String, at: usize, size: usize| {
            let (nccl, cuda, process) = (Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process));
            let options = GroupOptions::default().timeout(Duration::from_millis(500));
            let stack = Stack::new(nccl, cuda, process, DEVICE);
            let (layout, store) = (Layout::one_host(at, size)?, rank.store.scope(&scope));
            DeviceGroup::new(stack, layout, store, NcclOptions::default(), options)
        };
        let mut groups = DeviceGroups::new(group(format!("shard {replica}"), shard, shards)?);
        if self.reduces_apart {
            groups = groups.reductions(group(format!("reductions {replica}"), shard, shards)?);
        }
        if replicas > 1 {
            groups = groups.replicate(group(format!("replicas {shard}"), replica, replicas)?);
        }
        if let Some(part) = smaller {
            groups = groups.after_forward(group(format!("part {replica} {}", shard / part), shard % part, part)?);
        }
        Ok(groups)
    }
}

/// One rank: the model, the memory of its computation, and the program's stream.
struct Rank<'a> {
    job: &'a Job,
    cuda: Arc<SimCuda>,
    compute: Stream,
    model: Model,
    /// Inputs and targets of every micro-batch.
    batches: Vec<[Memory; 2]>,
    /// The inputs of each unit and the outputs of the last.
    activations: Vec<Memory>,
    slopes: Vec<Memory>,
    /// A loss for each micro-batch.
    losses: Memory,
    speeds: Vec<Memory>,
    host_speeds: Vec<Vec<f32>>,
}

impl<'a> Rank<'a> {
    fn new(job: &'a Job, rank: &SimRank) -> Result<Rank<'a>> {
        let (task, cuda) = (&job.task, Arc::clone(&rank.cuda));
        let (mut model, compute) = model(job, rank)?;
        if let Some(mistake) = job.mistake {
            model.plant(mistake);
        }
        for param in model.owned().collect::<Vec<_>>() {
            model.load_full(param, &task.initial()[param.unit][param.index])?;
        }
        let parts = task.micros * rank.size;
        let upload = |values: &[f64]| uploaded(&cuda, &kernels::bytes_of(values, DType::F64), compute);
        let part = |step, micro| task.batch(step, micro * rank.size + rank.rank, parts);
        let all = (0..task.steps).flat_map(|step| (0..task.micros).map(move |micro| (step, micro)));
        let both = all.map(|(step, micro)| part(step, micro));
        let batches = both.map(|(x, t)| Ok([upload(&x)?, upload(&t)?])).collect::<Result<Vec<_>>>()?;
        let samples = batches[0][0].byte_len() / 8 / task.blocks[0].inputs;
        let memory = |len: usize| DeviceBuffer::new(&cuda, DEVICE, len * 8);
        let widths =
            || task.blocks.iter().map(|block| block.inputs).chain([task.blocks[task.blocks.len() - 1].outputs]);
        let activations = widths().map(|width| memory(samples * width)).collect::<Result<_>>()?;
        let slopes = widths().map(|width| memory(samples * width)).collect::<Result<_>>()?;
        let losses = memory(task.steps * task.micros)?;
        let lens: Vec<usize> = model.trained().map(|param| task.blocks[param.unit].lens()[param.index]).collect();
        let speeds = lens.iter().map(|len| uploaded(&cuda, &vec![0; len * 4], compute)).collect::<Result<_>>()?;
        let host_speeds = lens.iter().map(|len| vec![0.0; *len]).collect();
        Ok(Rank { job, cuda, compute, model, batches, activations, slopes, losses, speeds, host_speeds })
    }

    fn train(&mut self) -> Result<End> {
        let task = &self.job.task;
        let (mut costs, mut norms) = (Vec::new(), Vec::new());
        if self.job.steps_inside {
            self.step_inside()?;
        }
        for step in 0..task.steps {
            let before = [self.model.allocations(), self.model.host_waits()];
            for micro in 0..task.micros {
                (self.job.before)(&mut self.model, step, micro);
                self.pass(step, micro)?;
                if self.job.peeks && micro + 1 < task.micros {
                    self.peek()?;
                }
            }
            if self.job.steps_inside {
                costs.push(self.cost(before)?);
                continue;
            }
            if let Some((most, p)) = task.clip {
                self.model.clip_gradients(most, p)?;
            }
            match self.job.policy.chosen_offload() {
                Offload::Host => self.step_on_host()?,
                _ => self.step()?,
            }
            self.model.zero_gradients()?;
            if self.job.reads_norms {
                norms.extend(self.model.clipped_norm()?);
            }
            costs.push(self.cost(before)?);
        }
        let params = self.collect();
        // The program's memory is dropped after this, so that nothing may use it any more.
        self.model.settle()?;
        let losses = kernels::values_of(&downloaded(&self.cuda, &self.losses, self.compute)?, DType::F64);
        let losses = losses.chunks(task.micros).map(|of_step| of_step.iter().sum::<f64>() / task.micros as f64);
        Ok(End { losses: losses.collect(), params: params?, norms, costs })
    }

    /// What a step has cost, and that gradients are gone after it.
    fn cost(&self, before: [usize; 2]) -> Result<[usize; 2]> {
        assert_eq!(self.model.memory().of(Class::Gradients).current, 0);
        Ok([self.model.allocations() - before[0], self.model.host_waits() - before[1]])
    }

    /// Has the optimizer step as soon as a gradient is reduced.
    fn step_inside(&mut self) -> Result<()> {
        for (at, param) in self.model.trained().collect::<Vec<_>>().into_iter().enumerate() {
            let (cuda, speeds) = (Arc::clone(&self.cuda), self.speeds[at].clone());
            self.model.after_accumulate(param, move |update, stream| {
                let gradient = update.gradient.expect("a gradient that was just reduced");
                let speed = speeds.part(0, update.shard.byte_len())?;
                let [shard, speed] = [update.shard.span(), speed.span()].map(Argument::Write);
                let arguments = [shard, Argument::Read(gradient.span()), speed];
                cuda.launch(DESCEND, Grid { blocks: 1, threads: 32 }, &arguments, stream).expect("launched");
                Ok(Then::Free)
            })?;
        }
        Ok(())
    }

    /// One forward and one backward.
    fn pass(&mut self, step: usize, micro: usize) -> Result<()> {
        let task = &self.job.task;
        let (at, last) = (step * task.micros + micro, task.blocks.len());
        self.cuda.copy(self.activations[0].span(), self.batches[at][0].span(), self.compute).expect("copied");
        for unit in 0..last {
            let full = self.model.before_forward(unit)?;
            self.watch();
            let mut arguments = self.params(unit, &full)?;
            arguments.push(Argument::Read(self.activations[unit].span()));
            arguments.push(Argument::Write(self.activations[unit + 1].span()));
            self.launch(FORWARD, &arguments);
            self.model.after_forward(unit)?;
            self.watch();
        }
        let value = self.losses.part(at * 8, 8)?;
        let (y, targets, slope) = (&self.activations[last], &self.batches[at][1], &self.slopes[last]);
        let factor = 1.0 / task.micros as f32;
        let [y, targets] = [y, targets].map(|memory| Argument::Read(memory.span()));
        let [slope, value] = [slope.span(), value.span()].map(Argument::Write);
        self.launch(LOSS, &[y, targets, slope, value, Argument::Real(factor)]);
        for unit in (0..last).rev() {
            self.backward(unit)?;
        }
        self.model.finish_backward()?;
        self.watch();
        Ok(())
    }

    fn backward(&mut self, unit: usize) -> Result<()> {
        let block = &self.job.task.blocks[unit];
        let full = self.model.before_backward(unit)?;
        self.watch();
        let dtype = full.dtype(WEIGHT)?;
        let lent = self.model.gradient_memory(unit, dtype)?;
        let brings = |index: usize| match index {
            WEIGHT => block.trains_weight,
            BIAS => block.trains_bias,
            AGAIN => block.has_again,
            index => index == GAIN,
        };
        let wanted = lent.into_iter().filter(|gradient| brings(gradient.index()));
        let gradients = match self.job.has_own_gradients {
            false => wanted.collect::<Vec<_>>(),
            true => {
                let own = |lent: DeviceGradient<SimCuda>| {
                    let memory = DeviceBuffer::new(&self.cuda, DEVICE, lent.buffer().byte_len())?;
                    Ok(DeviceGradient::new(lent.index(), dtype, &memory))
                };
                wanted.map(own).collect::<Result<Vec<_>>>()?
            }
        };
        let mut arguments = self.params(unit, &full)?;
        arguments.push(Argument::Read(self.activations[unit].span()));
        arguments.push(Argument::Read(self.slopes[unit + 1].span()));
        arguments.push(Argument::Write(self.slopes[unit].span()));
        for gradient in &gradients {
            arguments.push(Argument::Number(gradient.index() as u64));
            arguments.push(Argument::Write(gradient.buffer().span()));
        }
        self.launch(BACKWARD, &arguments);
        self.model.gradients(unit, &gradients)?;
        self.watch();
        Ok(())
    }

    /// A step of the optimizer on the device.
    fn step(&mut self) -> Result<()> {
        for (at, param) in self.model.trained().collect::<Vec<_>>().into_iter().enumerate() {
            let update = self.model.update(param)?;
            let gradient = update.gradient.expect("a gradient of each trained parameter");
            let speed = self.speeds[at].part(0, update.shard.byte_len())?;
            let [shard, speed] = [update.shard.span(), speed.span()].map(Argument::Write);
            self.launch(DESCEND, &[shard, Argument::Read(gradient.span()), speed]);
        }
        Ok(())
    }

    /// Reads the gradients that are there, and forgets them.
    fn peek(&mut self) -> Result<()> {
        for param in self.model.trained().collect::<Vec<_>>() {
            if let Some(gradient) = self.model.update(param)?.gradient {
                self.launch(SCALE, &[Argument::Write(gradient.span()), Argument::Real(1.0)]);
            }
        }
        self.model.zero_gradients()
    }

    /// The same on the host.
    fn step_on_host(&mut self) -> Result<()> {
        for (at, param) in self.model.trained().collect::<Vec<_>>().into_iter().enumerate() {
            let speed = &mut self.host_speeds[at];
            self.model.update_on_host::<f32>(param, |shard, gradient| {
                speed.truncate(shard.len());
                descend(shard, gradient.expect("a gradient of each trained parameter"), speed);
            })?;
        }
        Ok(())
    }

    fn params(&self, unit: usize, full: &Lent<SimCuda>) -> Result<Vec<Argument>> {
        let param = |index: usize| full.param(index).map(|memory| Argument::Read(memory.span()));
        let dtype = self.job.task.blocks[unit].compute.or(self.job.policy.compute_dtype()).unwrap_or(DType::F32);
        assert_eq!(full.dtype(WEIGHT)?, dtype, "unit {unit}");
        let head = [Argument::Number(unit as u64), Argument::Number(code(dtype))];
        Ok(head.into_iter().chain([param(WEIGHT)?, param(BIAS)?, param(GAIN)?]).collect())
    }

    fn collect(&mut self) -> Result<Vec<Vec<Vec<f32>>>> {
        let mut all = self.job.task.zeros();
        for param in self.model.owned().collect::<Vec<_>>() {
            self.model.copy_full(param, &mut all[param.unit][param.index])?;
        }
        Ok(all)
    }

    #[track_caller]
    fn launch(&self, kernel: KernelId, arguments: &[Argument]) {
        self.cuda.launch(kernel, Grid { blocks: 1, threads: 32 }, arguments, self.compute).expect("launched");
    }

    fn watch(&self) {
        (self.job.watch)(&self.model, &self.job.task);
    }
}

/// A model of zeros, and the program's stream.
pub(crate) fn model(job: &Job, rank: &SimRank) -> Result<(Model, Stream)> {
    let compute = rank.cuda.create_stream(DEVICE, false).expect("a stream");
    let named = job.task.blocks.iter().enumerate();
    let units = named.map(|(index, block)| block.spec(&format!("block {index}"))).collect();
    let stack = Stack::new(Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process), DEVICE);
    let model = DeviceSharded::new(stack, compute, job.groups(rank)?, units, job.policy.clone())?;
    Ok((model, compute))
}

pub(crate) fn uploaded(cuda: &Arc<SimCuda>, bytes: &[u8], stream: Stream) -> Result<Memory> {
    let (host, memory) = (PinnedBuffer::new(cuda, bytes.len())?, DeviceBuffer::new(cuda, DEVICE, bytes.len())?);
    if !bytes.is_empty() {
        host.write(bytes)?;
        cuda.copy(memory.span(), host.span(), stream).expect("copied");
        cuda.synchronize_stream(stream).expect("an end");
    }
    Ok(memory)
}

pub(crate) fn downloaded(cuda: &Arc<SimCuda>, memory: &Memory, stream: Stream) -> Result<Vec<u8>> {
    let host = PinnedBuffer::new(cuda, memory.byte_len())?;
    cuda.copy(host.span(), memory.span(), stream).expect("copied");
    cuda.synchronize_stream(stream).expect("an end");
    let mut bytes = vec![0; memory.byte_len()];
    host.read(&mut bytes)?;
    Ok(bytes)
}
