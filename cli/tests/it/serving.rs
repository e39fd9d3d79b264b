//! Serving studies as a user runs them: answers in words, files, mistakes with
//! their places.

use crate::support::Desk;
use serde_json::Value;
use std::fs;

/// A small one: two caches, two engine sizes.
pub const STUDY: &str = r#"title = "a service"
axes = [{ path = "job.parallelism.tensor", values = [2, 4] }, { path = "serving.prompt.median", values = [500, 1000] }]
scenarios = [{ name = "16 bits" }, { name = "3 bits", set = ["cluster.codec.extends=codecs/line-lanes", "cluster.codecs-per-gpu=256", "job.compression.kv=3"] }]
[study.cluster]
extends = "clusters/dgx-h100"
[study.job]
phase = "decode"
sequence = 1024
llm = { extends = "llms/llama-3-70b" }
[study.serving]
rate = 2
requests = 400
gpus = 8
ttft-p99 = "4 s"
tpot-p99 = "100 ms"
usd-per-gpu-hour = 3
bound = 0.1
most-requests = 40000
prompt = { distribution = "log-normal", median = 500, sigma = 0.5, most = 8192 }
output = { distribution = "exponential", mean = 1000 }
"#;

fn outcome(desk: &Desk, more: &str) -> Value {
    desk.json(format!("sweep study.toml --json -q {more}"))
}

#[test]
fn a_smaller_cache_is_compared_at_equal_promises() {
    let desk = Desk::new();
    desk.write("study.toml", STUDY);
    let found = outcome(&desk, "");
    assert_eq!(found["points"].as_array().unwrap().len(), 8);
    for point in found["points"].as_array().unwrap() {
        let goodput = &point["goodput"];
        assert!(goodput["served"]["ttft"]["p99_s"].as_f64().unwrap() <= 4.0, "{point}");
        assert!(goodput["served"]["tpot"]["p99_s"].as_f64().unwrap() <= 0.1, "{point}");
        let little = &goodput["served"]["little"];
        let sides = ["mean_present", "rate_times_latency"].map(|side| little[side].as_f64().unwrap());
        assert!((sides[0] / sides[1] - 1.0).abs() < 1e-9, "{point}");
        let rate = goodput["requests_per_s"].as_f64().unwrap();
        let [low, high] = [0, 1].map(|side| goodput["within"][side].as_f64().unwrap());
        assert!(low <= rate && rate <= high, "{point}");
        assert!(goodput["settled"] == false || high / low < 1.24, "{point}");
    }
    for workload in found["workloads"].as_array().unwrap() {
        // Two GPUs have little room beside the weights: there the cache decides.
        let small = &workload["choices"][1]["machine_by_machine"][0];
        assert_eq!(small["machine"]["job.parallelism.tensor"], "2");
        assert!(small["over_baseline"].as_f64().unwrap() > 1.2, "{workload}");
        let gain = &workload["choices"][1]["over_baseline"];
        let [low, high] = [0, 1].map(|side| gain["requests_within"][side].as_f64().unwrap());
        assert!((low..high).contains(&gain["requests_per_s"].as_f64().unwrap()), "{workload}");
    }
    let said = desk.ok("sweep study.toml");
    assert!(
        said.contains("3 bits:") && said.contains("the requests") && said.contains("of 16 bits"),
        "{said}"
    );
    assert!(said.contains("95 % intervals. Runs go on until a rate is known within 10 %"), "{said}");
    let csv = desk.text("out/sweep/study/serving.csv");
    assert_eq!(csv.lines().count(), 17);
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
    assert!(desk.text("out/sweep/study/report.html").contains("Most requests"));
}

/// Whatever a run begins with, it goes on until its rate is known: rates and
/// gains agree within the intervals that are printed.
#[test]
fn gains_do_not_hang_on_how_many_requests_a_run_begins_with() {
    let desk = Desk::new();
    desk.write("study.toml", STUDY.replace("median\", values = [500, 1000]", "median\", values = [500]"));
    let found = ["1000", "5000", "40000"].map(|requests| {
        let sets = "--set study.serving.bound=0.05 --set study.serving.most-requests=100000";
        outcome(&desk, &format!("--set study.serving.requests={requests} {sets} --out {requests}"))
    });
    let ends = |of: &Value| [0, 1].map(|side| of[side].as_f64().unwrap());
    for one in &found {
        for other in &found {
            let choice = |found: &Value, at: usize| found["workloads"][0]["choices"][at].clone();
            for at in 0..2 {
                let [own, others] = [one, other].map(|found| ends(&choice(found, at)["within"]));
                assert!(own[0] <= others[1], "rates of scenario {at}: {own:?} and {others:?}");
            }
            let [own, others] =
                [one, other].map(|found| ends(&choice(found, 1)["over_baseline"]["requests_within"]));
            assert!(own[0] <= others[1], "gains: {own:?} and {others:?}");
        }
    }
}

/// What arrives faster than it is served has no latency: the queue is named.
#[test]
fn a_queue_that_grows_is_named() {
    let desk = Desk::new();
    desk.write("study.toml", STUDY.replace("rate = 2", "rate = 200"));
    let said = desk.ok("sweep study.toml");
    assert!(said.contains("the queue of 8 points is unstable"), "{said}");
    let csv = desk.text("out/sweep/study/serving.csv");
    let stated: Vec<&str> = csv.lines().filter(|line| line.contains(",stated,")).collect();
    assert!(stated.len() == 8 && stated.iter().all(|line| line.ends_with(",unstable")), "{csv}");
    let played = desk.ok(format!("serve play {SMALL} --tensor 2 --rate 200"));
    assert!(played.contains("The queue is unstable"), "{played}");
}

/// A run that is told how long to be says when that is too short.
#[test]
fn a_run_that_is_too_short_says_so() {
    let desk = Desk::new();
    let play = |own: &str| desk.ok(format!("serve play {SMALL} --tensor 2 {own}"));
    let axis = "axes = [{ path = \"serving.output.mean\", values = [500, 1000] }, ";
    desk.write("study.toml", STUDY.replace("axes = [", axis));
    let sets = "--set study.serving.most-requests=400 --set study.serving.bound=0.02";
    let said = desk.ok(format!("sweep study.toml --out s {sets}"));
    assert!(said.contains("Too short to tell a rate: the runs of 16 of 16 points"), "{said}");
    // One chart for each prompt, over answers: two prompts are not one line.
    let page = desk.text("s/report.html");
    for chart in ["over the workload: prompt median 500", "over the workload: prompt median 1000"] {
        assert!(page.contains(chart), "{chart}");
    }
    assert!(said.contains("× [runs too short to tell] the requests"), "{said}");
    let short = play("--rate 2 --requests 60");
    assert!(short.contains("too short for a steady state"), "{short}");
    let settled = play("--rate 2");
    assert!(settled.contains("the rate is within 2 %"), "{settled}");
    let rates = ["300", "2000", "30000"].map(|requests| {
        let found =
            desk.json(format!("serve play {SMALL} --tensor 2 --rate 2 --requests {requests} --json -q"));
        let number = |key: &str| found[key].as_f64().unwrap();
        let (rate, half) = (number("tokens_per_s"), number("tokens_per_s_half_width"));
        let tokens = rate / number("requests_per_s");
        assert!((819.0..1024.0).contains(&tokens), "{found}");
        [rate - half, rate + half]
    });
    for own in rates {
        assert!(rates.iter().all(|other| own[0] <= other[1]), "{rates:?}");
    }
}

#[test]
fn threads_change_nothing() {
    let desk = Desk::new();
    desk.write("study.toml", STUDY);
    let [one, three] = ["1", "3"].map(|threads| outcome(&desk, &format!("--threads {threads}")));
    assert_eq!(one, three);
}

#[test]
fn a_trace_takes_the_place_of_distributions() {
    let desk = Desk::new();
    let drawn = "rate = 2\nrequests = 400\n";
    let (start, _) = STUDY.split_at(STUDY.find("prompt = {").unwrap());
    let text = start
        .replace(drawn, "trace = \"mine.csv\"\n")
        .replace(", { path = \"serving.prompt.median\", values = [500, 1000] }", "");
    fs::create_dir(desk.at("deep")).unwrap();
    desk.write("deep/study.toml", &text);
    let rows: String =
        (0..50).map(|at| format!("{},{},{}\n", f64::from(at) * 0.4, 300 + at, 20 + at)).collect();
    let trace = desk.at("deep/mine.csv");
    fs::write(&trace, format!("arrival_s,prompt_tokens,output_tokens\n{rows}")).unwrap();
    // A path is relative to the study's folder.
    let found = desk.json("sweep deep/study.toml --json -q");
    assert!((found["points"][0]["arriving_per_s"].as_f64().unwrap() - 2.5).abs() < 1e-9);
    assert_eq!(found["points"][0]["at_rate"]["requests"], 50);
    fs::write(&trace, "arrival_s,prompt_tokens,output_tokens\n0,5,9\n1,none,9\n").unwrap();
    let said = desk.refused("sweep deep/study.toml --force");
    assert!(said.contains("mine.csv:3:3") && said.contains("`none` is no count"), "{said}");
    fs::remove_file(&trace).unwrap();
    let said = desk.refused("sweep deep/study.toml --force");
    assert!(said.contains("study.toml:11:") && said.contains("cannot read the trace"), "{said}");
}

#[test]
fn mistakes_are_shown_where_they_were_made() {
    let desk = Desk::new();
    for (was, is, said) in [
        ("gpus = 8", "gpus = 8\ngpu = 8", "did you mean `gpus`?"),
        ("gpus = 8", "gpus = 7", "7 GPUs do not make engines of 2"),
        ("ttft-p99 = \"4 s\"", "ttft-p99 = \"4 kg\"", "study.toml:14:"),
        ("requests = 400", "requests = 0", "study.toml:12:"),
        ("rate = 2\n", "", "`rate`, `prompt` and `output`, or a `trace`"),
        ("mean = 1000", "median = 1000", "expected `mean`, more than zero"),
        ("usd-per-gpu-hour = 3", "usd-per-gpu-hour = 3\ntransfer-bits = 3", "nothing is sent between pools"),
        ("usd-per-gpu-hour = 3", "usd-per-gpu-hour = 3\nprefill-gpus = 8", "leave none to decode"),
    ] {
        desk.write("study.toml", STUDY.replacen(was, is, 1));
        let refusal = desk.refused("sweep study.toml --force");
        assert!(refusal.contains(said), "{is}: {refusal}");
    }
    desk.write("study.toml", STUDY);
    desk.refused("sweep study.toml --shard 0/2");
}

#[test]
fn a_calibration_brings_the_curves_of_the_gpu_it_was_made_on() {
    let desk = Desk::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../validation/data/h200/calibration.toml");
    let text = STUDY.replace("clusters/dgx-h100", "clusters/dgx-h200");
    desk.write("study.toml", text);
    let plain = outcome(&desk, "");
    let measured = outcome(&desk, &format!("--calibration {file} --out measured"));
    let paths: Vec<&str> =
        measured["calibration"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    for curve in ["gemm", "memory", "attention"] {
        assert!(paths.contains(&format!("cluster.gpu.{curve}-efficiency").as_str()), "{paths:?}");
    }
    assert_ne!(plain["points"][0]["at_rate"]["ttft"], measured["points"][0]["at_rate"]["ttft"]);
    // Another GPU keeps its own.
    desk.write("study.toml", STUDY);
    let said = desk.refused(format!("sweep study.toml --force --calibration {file}"));
    assert!(said.contains("measured on NVIDIA H200"), "{said}");
}

fn json(line: &str) -> Value {
    Desk::new().json(format!("{line} --json -q"))
}

const SMALL: &str = "Qwen3-32B --precision bf16 --gpu h100-sxm --engine vllm";

#[test]
fn a_search_ranks_what_keeps_its_promise() {
    let find = |gpus: &str, tpot: &str| {
        let own = format!("--gpus {gpus} --ttft '1 s' --tpot '{tpot}' --most-concurrency 256 --top 4");
        json(&format!("serve search {SMALL} {own}"))
    };
    let found = find("4", "25 ms");
    let ranked = found["ranked"].as_array().unwrap();
    assert!(!ranked.is_empty() && ranked.len() <= 4, "{found}");
    for own in ranked {
        assert!(own["ttft_s"].as_f64().unwrap() <= 1.0 && own["tpot_s"].as_f64().unwrap() <= 0.025, "{own}");
        assert!(own["gpus"].as_u64().unwrap() <= 4, "{own}");
    }
    let rate = |found: &Value| found["ranked"][0]["tokens_per_s"].as_f64().unwrap();
    let rates: Vec<f64> = ranked.iter().map(|own| own["tokens_per_s"].as_f64().unwrap()).collect();
    assert!(rates.windows(2).all(|pair| pair[0] >= pair[1]), "{rates:?}");
    assert!(rate(&find("8", "25 ms")) >= rate(&found), "more GPUs serve less");
    assert!(rate(&find("4", "40 ms")) >= rate(&found), "a looser promise serves less");
}

#[test]
fn a_load_that_is_played_keeps_its_books() {
    for load in [
        "--concurrency 16 --turns 3 --think '1 s'",
        "--rate 2 --requests 300 --prefix-hits 0.5",
        "--concurrency 64 --reserved 0 --swap --prompt 8000",
    ] {
        let found = json(&format!("serve play {SMALL} --tensor 2 {load}"));
        let played = &found["played"];
        assert_eq!(played["asked_tokens"], played["produced_tokens"], "{found}");
        let [present, latency] = ["present_s", "latency_sum_s"].map(|side| played[side].as_f64().unwrap());
        assert!((present / latency - 1.0).abs() < 1e-6, "{found}");
    }
}

#[test]
fn a_map_says_where_a_codec_pays() {
    let desk = Desk::new();
    let cells = "--tensor 2 --contexts 2048,16384 --concurrencies 4,32";
    let silicon = "--codec line-lanes --codecs-per-gpu 256 --out map";
    let map = desk.json(format!("serve codec {SMALL} {cells} {silicon} --json -q"));
    let all = map["cells"].as_array().unwrap();
    assert_eq!(all.len(), 16);
    let of = |place: &str, context: u64, concurrency: u64| {
        let own = all.iter().find(|cell| {
            cell["place"] == place && cell["context"] == context && cell["concurrency"] == concurrency
        });
        own.unwrap().clone()
    };
    // Long contexts and many at once fill the memory: there a smaller cache serves more.
    assert_eq!(of("hbm", 16384, 32)["verdict"], "pays", "{}", of("hbm", 16384, 32));
    let gain = |cell: Value| cell["tokens"]["value"].as_f64().unwrap();
    assert!(gain(of("hbm", 16384, 32)) > gain(of("hbm", 2048, 4)));
    assert_eq!(of("disk", 16384, 4)["verdict"], "pays", "{}", of("disk", 16384, 4));
    for cell in all.iter().filter(|cell| !cell["tokens"].is_null()) {
        let [low, value, high] = ["low", "value", "high"].map(|key| cell["tokens"][key].as_f64().unwrap());
        assert!(low <= value && value <= high, "{cell}");
    }
    let answers = &map["answers"];
    assert_eq!(answers["of_this_model"], false, "{answers}");
    assert!(answers["measured"].as_array().is_some_and(|own| own.len() == 2), "{answers}");
    let page = desk.text("map/report.html");
    assert!(page.contains("4 in flight") && page.contains("32 in flight"));
    assert!(page.contains("itself was not measured"));
}

#[test]
fn services_that_cannot_be_are_refused_with_a_way_out() {
    let desk = Desk::new();
    let csv = |name: &str, rows: &str| {
        desk.write(name, format!("arrival_s,prompt_tokens,output_tokens\n{rows}"));
    };
    csv("early.csv", "-1,10,10\n");
    csv("back.csv", "2,10,10\n1,10,10\n");
    csv("none.csv", "");
    let play = |own: &str| format!("serve play {SMALL} {own}");
    let search = |own: &str| format!("serve search {SMALL} {own}");
    for (line, said) in [
        (search("--gpus 2 --ttft '1 ms' --tpot '1 us'"), "the nearest is"),
        (search("--gpus 2 --ttft '1 kg'"), "--ttft"),
        (search("--gpus 2 --ttft '0 s'"), "ttft is 0, but must be a time above zero"),
        (
            "serve search DeepSeek-R1 --gpu h100-sxm --gpus 4".into(),
            "DeepSeek-R1 in fp8 does not fit 4 × h100-sxm",
        ),
        ("serve search DeepSeek-R1 --gpu h100-sxm --precision fp4".into(), "was never measured on h100"),
        ("serve search Nobody-1B".into(), "model `Nobody-1B` is not known"),
        (play("--tensor 3 --concurrency 4"), "64 heads do not divide among 3 GPUs"),
        (play("--tensor 2 --expert 3 --concurrency 4"), "2 GPUs do not make 3 groups"),
        (play("--tensor 2 --trace early.csv"), "early.csv:2:1"),
        (play("--tensor 2 --trace back.csv"), "back.csv:3:1"),
        (play("--tensor 2 --trace none.csv"), "there are no requests"),
        (play("--tensor 2 --trace gone.csv"), "cannot read the trace"),
        (play("--tensor 2 --rate=-1"), "rate is -1"),
        (play("--tensor 2 --concurrency 4 --prefix-hits 1.5"), "prefix-hits is 1.5"),
        (play("--tensor 2 --concurrency 4 --draft 3 --acceptance 2"), "acceptance is 2"),
        (play("--tensor 2 --concurrency 1 --prompt 4000000"), "an engine holds"),
    ] {
        let refusal = desk.refused(&line);
        assert!(refusal.contains(said), "{line}: {refusal}");
    }
}

#[test]
fn serving_is_fast_enough_to_search_with() {
    let rates = json("serve bench --seconds 0.3");
    for rate in rates.as_array().unwrap() {
        let [own, asked] = ["per_second", "asked_per_second"].map(|key| rate[key].as_f64().unwrap());
        // Tests run unoptimized beside others: a tenth is a sign of life, `trinity serve bench` tells the speed.
        assert!(own > 0.1 * asked, "{rate}");
    }
}

#[test]
fn a_load_beyond_the_measured_kernels_is_answered_and_said() {
    let play =
        "serve play Llama-3.1-70B --precision fp8 --gpu h200-sxm --tensor 8 --concurrency 1 --requests 2";
    let desk = Desk::new();
    let said = |lengths: &str| desk.ok(format!("{play} {lengths}"));
    let usual = said("--prompt 1024 --answer 128");
    assert!(!usual.contains("extrapolated"), "{usual}");
    let long = said("--prompt 400000 --answer 128");
    assert!(long.contains("Outside what was measured, and extrapolated: attention"), "{long}");
    assert!(long.contains("over 400128 tokens"), "{long}");
}
