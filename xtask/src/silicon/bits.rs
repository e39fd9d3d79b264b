//! `cargo xtask silicon --bits`: what the encoders in gates take of captured
//! tensors beside the paper's H.264 pipeline, at one error, with the mm² of each.
//!
//! Keeps what was found in `FILE`, which `--show` and the notebook read.

use super::table::{Figure, figures, h264};
use crate::{
    compile::cargo,
    files,
    tools::{Failure, succeed_with_output},
    workspace::{captured, captured_of_others, root, shared},
};
use std::collections::BTreeMap;

pub const FILE: &str = "validation/data/silicon-bits.csv";
/// Relative squared error that all are held to.
const NMSE: f64 = 0.01;
/// What codes, and the design that it is; none for H.264.
const CODECS: [(&str, Option<&str>); 6] = [
    ("h264", None),
    ("line-rtl-1", Some("line_enc_1")),
    ("line-rtl-4", Some("line_enc_4")),
    ("line-rtl", Some("line_enc")),
    ("line-rtl-hadamard", Some("line_enc_transforms")),
    ("line-rtl-dct", Some("line_enc_transforms")),
];
/// Bits of pictures beside H.264, and the PSNR in decibels that all are held to.
pub const PICTURES: &str = "validation/data/silicon-picture.csv";
const PSNR_DB: &str = "32,36,40,44";
/// A stream beside the repository whose picture is coded: a photograph that H.264 has not seen.
const PHOTO: &str = "conformance/h265/libheif_example-item20004.265";
/// Our own pieces, where nothing was captured.
const OWN: &str = "study/data/tensors.safetensors";

/// Bits per value by class of a file, and by codec.
type Rows = BTreeMap<String, BTreeMap<String, f64>>;

pub fn run() -> Result<(), Failure> {
    let mut tensors = [captured(), captured_of_others()].concat();
    if tensors.is_empty() {
        eprintln!("no captured tensors beside the repository: our own pieces, {OWN}");
        tensors.push(root().join(OWN));
    }
    let example = ["run", "--quiet", "--package", "trinity-tensor", "--example", "silicon_bits", "--"];
    let rows = succeed_with_output(cargo(&example).arg(NMSE.to_string()).args(&tensors))?;
    if tensors.len() > 1 {
        files::write(&root().join(FILE), &rows)?;
        eprintln!("wrote {FILE}");
    }
    let rows = parse(&rows);
    eprint!("{}", table(&rows)?);
    pictures()?;
    let behind: Vec<&str> =
        rows.iter().filter(|(_, bits)| !ahead(bits)).map(|(class, _)| &class[..]).collect();
    if behind.is_empty() {
        Ok(())
    } else {
        Err(format!("no fewer bits than H.264: {}", behind.join(", ")).into())
    }
}

/// A photograph, where it is: bits of picture mode beside H.264 at equal PSNR.
fn pictures() -> Result<(), Failure> {
    let photo = shared().join(PHOTO);
    if !photo.exists() {
        eprintln!("no {PHOTO} beside the repository: pictures are left out");
        return Ok(());
    }
    let example = ["run", "--quiet", "--package", "trinity-tensor", "--example", "silicon_picture", "--"];
    let rows = succeed_with_output(cargo(&example).arg(PSNR_DB).arg(&photo))?;
    files::write(&root().join(PICTURES), &rows)?;
    eprintln!("wrote {PICTURES}");
    eprint!("{}", picture_table(&rows));
    Ok(())
}

/// Bits per sample by picture and PSNR, one column for each codec in the order they come.
fn picture_table(rows: &str) -> String {
    let fields = |row: &str| row.split(',').map(str::to_string).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.lines().skip(1).map(fields).filter(|row| row.len() == 4).collect();
    let (mut codecs, mut lines) = (Vec::<&str>::new(), Vec::<(String, Vec<&str>)>::new());
    for row in &rows {
        let what = format!("{}, {} dB", row[0], row[1]);
        if !codecs.contains(&&row[2][..]) {
            codecs.push(&row[2]);
        }
        match lines.last_mut().filter(|(last, _)| *last == what) {
            Some((_, bits)) => bits.push(&row[3]),
            None => lines.push((what, vec![&row[3]])),
        }
    }
    let mut text = format!("bits per sample at equal PSNR\n{:<45}", "");
    codecs.iter().for_each(|codec| text += &format!("{codec:>18}"));
    for (what, bits) in lines {
        text += &format!("\n{what:<45}");
        bits.iter().for_each(|bits| text += &format!("{bits:>18}"));
    }
    text + "\n"
}

/// What was found before.
pub fn show() -> Result<(), Failure> {
    let missing = |why| Failure::Missing(format!("{why}: run `cargo xtask silicon --bits`"));
    let rows = files::text(&root().join(FILE)).map_err(missing)?;
    eprint!("{}", table(&parse(&rows))?);
    if let Ok(rows) = files::text(&root().join(PICTURES)) {
        eprint!("{}", picture_table(&rows));
    }
    Ok(())
}

fn parse(rows: &str) -> Rows {
    let mut found = Rows::new();
    for row in rows.lines().skip(1) {
        if let [file, class, codec, _, bits, _] = row.split(',').collect::<Vec<_>>()[..]
            && let Ok(bits) = bits.parse()
        {
            found.entry(format!("{file}, {class}")).or_default().insert(codec.to_string(), bits);
        }
    }
    found
}

/// Whether the encoder with its whole trellis takes fewer bits than H.264.
fn ahead(bits: &BTreeMap<String, f64>) -> bool {
    bits.get("line-rtl").zip(bits.get("h264")).is_some_and(|(ours, theirs)| ours < theirs)
}

fn table(rows: &Rows) -> Result<String, String> {
    let built = figures()?;
    let theirs = h264()?;
    let figure = |design: Option<&str>, of: &dyn Fn(&Figure) -> Option<f64>| match design {
        Some(name) => of(built.iter().find(|figure| figure.name == name)?),
        None => of(&theirs),
    };
    let mut text = format!("bits per value at a relative squared error of {NMSE}\n{:<45}", "");
    for (codec, _) in CODECS {
        text += &format!("{codec:>18}");
    }
    text += "   8 states below H.264\n";
    for (class, bits) in rows {
        text += &format!("{class:<45}");
        for (codec, _) in CODECS {
            text += &bits.get(codec).map_or_else(|| format!("{:>18}", "-"), |bits| format!("{bits:>18.3}"));
        }
        if let (Some(ours), Some(theirs)) = (bits.get("line-rtl"), bits.get("h264")) {
            text += &format!("{:>15.1} %", 100.0 * (1.0 - ours / theirs));
        }
        text += "\n";
    }
    let mut line = |what: &str, of: &dyn Fn(&Figure) -> Option<f64>| {
        text += &format!("{what:<45}");
        for (_, design) in CODECS {
            let value = figure(design, of);
            text += &value.map_or_else(|| format!("{:>18}", "-"), |value| format!("{value:>18.4}"));
        }
        text += "\n";
    };
    line("encoder for 100 Gb/s, mm2 (H.264: Table 3)", &|figure| Some(figure.area_mm2));
    line("encoder for 100 Gb/s, W", &|figure| figure.power_w);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "file,class,codec,tensors,bits_per_value,nmse\nkv,kv-cache,h264,4,3.5,0.01\n\
        kv,kv-cache,line-rtl,4,3.0,0.01\n";

    #[test]
    fn bits_stand_beside_the_area_of_who_took_them() {
        let rows = parse(ROWS);
        let shown = table(&rows).unwrap();
        assert!(
            shown.contains("kv, kv-cache") && shown.contains("3.500") && shown.contains("14.3 %"),
            "{shown}"
        );
        assert!(shown.contains("mm2") && !shown.contains("NaN"), "{shown}");
        let pictures = picture_table(
            "picture,psnr_db,codec,bits_per_sample\na,40,h264,1.5\na,40,line-rtl-picture,2.5\n",
        );
        assert!(pictures.contains("a, 40 dB") && pictures.contains("line-rtl-picture"), "{pictures}");
        assert!(pictures.lines().last().unwrap().ends_with("2.5"), "{pictures}");
        assert!(ahead(&rows["kv, kv-cache"]));
        assert!(!ahead(&parse(&ROWS.replace("3.0,", "3.6,"))["kv, kv-cache"]));
    }
}
