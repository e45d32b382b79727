//! Text tables.

use crate::paint::Paint;

/// Lays rows out under their heads, two spaces between columns. A head that begins with `>` aligns
/// its column right.
pub(crate) fn table<const N: usize>(
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let right = heads.map(|head| head.starts_with('>'));
    let heads = heads.map(|head| head.trim_start_matches('>').to_owned());
    let rows: Vec<[String; N]> = rows.into_iter().collect();
    let lines = || std::iter::once(&heads).chain(&rows);
    let width = |n: usize| lines().map(|line| line[n].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines().enumerate() {
        let cells = (0..N).map(|n| {
            let cell = &line[n];
            let paint = match number {
                0 => Some(Paint::Heading),
                _ => Paint::of_cell(&heads[n], cell),
            };
            // Escape codes have no width, so padding is computed without them.
            let padding = " ".repeat(widths[n] - cell.chars().count());
            let cell = paint.map_or_else(|| cell.clone(), |paint| paint.out(cell));
            if right[n] { padding + &cell } else { cell + &padding }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Formats an optional cell; `-` if it is missing.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["é".to_owned(), "7".to_owned()], ["longer".to_owned(), "123".to_owned()]];
        assert_eq!(table(["WHO", ">N"], rows), "WHO       N\né         7\nlonger  123\n");
        assert_eq!(table(["WHO", ">N"], []), "WHO  N\n");
    }
}
