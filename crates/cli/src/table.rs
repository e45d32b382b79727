//! Columns that line up.

/// A column: its head, and whether its cells are numbers.
pub(crate) struct Column(pub(crate) &'static str, pub(crate) Align);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Lays the rows out under their heads, two spaces between columns, no space at the end of a line.
pub(crate) fn lay_out<const N: usize>(columns: &[Column; N], rows: &[[String; N]]) -> String {
    let heads = columns.each_ref().map(|Column(head, _)| (*head).to_owned());
    let lines = || std::iter::once(&heads).chain(rows);
    let width = |n: usize| lines().map(|line| line[n].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for line in lines() {
        let cells = line.iter().zip(columns).zip(&widths).map(|((cell, column), width)| {
            let width = *width;
            match column.1 {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let columns = [Column("WHO", Align::Left), Column("N", Align::Right)];
        let rows = [["é".to_owned(), "7".to_owned()], ["longer".to_owned(), "123".to_owned()]];
        assert_eq!(lay_out(&columns, &rows), "WHO       N\né         7\nlonger  123\n");
        assert_eq!(lay_out(&columns, &[]), "WHO  N\n");
    }
}
