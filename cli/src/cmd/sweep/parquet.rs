//! `points.parquet`: the points of a sweep, typed, for data frames and databases.
//!
//! Shards keep their rows as CSV whatever is asked for in the end, so a sweep
//! may be resumed or merged into either form. Row groups are counted over the
//! whole sweep and know nothing of shards: the bytes are the same for any
//! number of them. One row group is held in memory at a time.

use super::files::State;
use super::rows;
use crate::{failure::Failure, output::Draft};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trinity_study::sweep::{POINT_COLUMNS, Study, layout_column};

/// Rows a group: a few megabytes of columns.
const GROUP_ROWS: usize = 1 << 16;

/// A column being filled. An empty cell is a null: a point that cannot run has
/// no metrics, a scenario without an axis no value on it.
struct Column {
    name: String,
    cells: Cells,
    /// 1 where there is a value, 0 where there is none.
    present: Vec<i16>,
}

enum Cells {
    Text(Vec<ByteArray>),
    Whole(Vec<i64>),
    Number(Vec<f64>),
}

impl Column {
    fn new(name: &str, cells: Cells) -> Self {
        Self { name: name.into(), cells, present: Vec::new() }
    }

    /// An axis is as narrow as all of its labels allow.
    fn of_axis(study: &Study, path: &str) -> Self {
        let axes = study.plan.space.scenarios().iter().flat_map(|scenario| &scenario.axes);
        let labels = || axes.clone().filter(|axis| axis.path == path).flat_map(|axis| &axis.labels);
        let cells = if labels().all(|label| label.parse::<i64>().is_ok()) {
            Cells::Whole(Vec::new())
        } else if labels().all(|label| label.parse::<f64>().is_ok()) {
            Cells::Number(Vec::new())
        } else {
            Cells::Text(Vec::new())
        };
        Self::new(path, cells)
    }

    fn schema(&self) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = match self.cells {
            Cells::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Cells::Whole(_) => (Physical::INT64, None),
            Cells::Number(_) => (Physical::DOUBLE, None),
        };
        let column = Type::primitive_type_builder(&self.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        Ok(Arc::new(column))
    }

    /// Takes a cell of the rows; `None` when it is not of the column's type.
    fn push(&mut self, cell: &str) -> Option<()> {
        self.present.push(i16::from(!cell.is_empty()));
        if !cell.is_empty() {
            match &mut self.cells {
                Cells::Text(cells) => cells.push(cell.into()),
                Cells::Whole(cells) => cells.push(cell.parse().ok()?),
                Cells::Number(cells) => cells.push(cell.parse().ok()?),
            }
        }
        Some(())
    }

    /// Writes what was taken, and starts again.
    fn write(&mut self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let present = Some(self.present.as_slice());
        match (&self.cells, writer) {
            (Cells::Text(cells), ColumnWriter::ByteArrayColumnWriter(to)) => {
                to.write_batch(cells, present, None)?
            }
            (Cells::Whole(cells), ColumnWriter::Int64ColumnWriter(to)) => {
                to.write_batch(cells, present, None)?
            }
            (Cells::Number(cells), ColumnWriter::DoubleColumnWriter(to)) => {
                to.write_batch(cells, present, None)?
            }
            _ => return Err(ParquetError::General(format!("`{}` is of another type", self.name))),
        };
        self.present.clear();
        match &mut self.cells {
            Cells::Text(cells) => cells.clear(),
            Cells::Whole(cells) => cells.clear(),
            Cells::Number(cells) => cells.clear(),
        }
        Ok(())
    }
}

/// The columns of `points.csv`, in its order.
fn columns(study: &Study) -> Vec<Column> {
    let mut columns = vec![
        Column::new("scenario", Cells::Text(Vec::new())),
        Column::new("index", Cells::Whole(Vec::new())),
        Column::new("status", Cells::Text(Vec::new())),
    ];
    let number = |name: &str| Column::new(name, Cells::Number(Vec::new()));
    columns.extend(POINT_COLUMNS.iter().map(|metric| number(metric.name())));
    columns.extend(layout_column(study).map(|name| Column::new(name, Cells::Text(Vec::new()))));
    columns.extend(study.plan.space.paths().iter().map(|path| Column::of_axis(study, path)));
    columns
}

/// Joins the rows of all shards into one typed table.
pub fn join_rows(study: &Study, states: &[(PathBuf, State)], path: &Path) -> Result<(), Failure> {
    let cannot_write =
        |error: ParquetError| Failure::run(format_args!("cannot write `{}`: {error}", path.display()));
    let mut draft = Draft::create(path)?;
    let mut table = Table::new(columns(study), &mut draft).map_err(cannot_write)?;
    for (folder, state) in states {
        let path = state.rows_path(folder);
        let mut line = 0;
        rows::read(state, folder, |rows| {
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(rows);
            let mut record = csv::StringRecord::new();
            let damaged = |line: u64| {
                Failure::input(format_args!("row {line} of `{}` is no row of this sweep", path.display()))
                    .help("delete the folder and run the sweep again")
            };
            while reader.read_record(&mut record).map_err(|_| damaged(line))? {
                table.push(&record).ok_or_else(|| damaged(line))?;
                line += 1;
                if table.rows == GROUP_ROWS {
                    table.end_group().map_err(cannot_write)?;
                }
            }
            Ok(())
        })?;
    }
    table.finish().map_err(cannot_write)?;
    draft.finish()
}

/// A Parquet file being written, one row group at a time.
struct Table<'a> {
    columns: Vec<Column>,
    /// Rows of the group being filled.
    rows: usize,
    writer: SerializedFileWriter<&'a mut Draft>,
}

impl<'a> Table<'a> {
    fn new(columns: Vec<Column>, draft: &'a mut Draft) -> Result<Self, ParquetError> {
        let fields = columns.iter().map(Column::schema).collect::<Result<Vec<_>, _>>()?;
        let schema = Arc::new(Type::group_type_builder("points").with_fields(fields).build()?);
        let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
        Ok(Self { columns, rows: 0, writer: SerializedFileWriter::new(draft, schema, properties)? })
    }

    fn push(&mut self, record: &csv::StringRecord) -> Option<()> {
        if record.len() != self.columns.len() {
            return None;
        }
        self.rows += 1;
        self.columns.iter_mut().zip(record).try_for_each(|(column, cell)| column.push(cell))
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            if let Some(mut writer) = group.next_column()? {
                column.write(writer.untyped())?;
                writer.close()?;
            }
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<(), ParquetError> {
        if self.rows > 0 {
            self.end_group()?;
        }
        self.writer.close().map(drop)
    }
}
