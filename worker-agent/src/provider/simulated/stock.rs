//! When a pool is out of stock (pure).

use meridian_agent_core::runtime::StockOut;
use meridian_shared::time::Millis;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stock {
    Available,
    /// Nodes are in stock again at this time.
    OutUntil(Millis),
    /// Nothing says when nodes are in stock again.
    Out,
}

impl Stock {
    /// The stock at `now`; of several stock-outs the longest counts.
    pub(super) fn at(stock_outs: &[StockOut], now: Millis) -> Self {
        let (mut stock, mut until) = (Self::Available, now);
        // A stock-out may begin before another one ends, so look again until none covers the end.
        while let Some(next) = stock_outs.iter().filter(|out| out.from <= until).map(|out| ends(*out)).max() {
            match next {
                Self::OutUntil(end) if end > until => (stock, until) = (next, end),
                Self::Out => return Self::Out,
                _ => break,
            }
        }
        stock
    }

    /// The first change of the stock after `now`.
    pub(super) fn next_change(stock_outs: &[StockOut], now: Millis) -> Option<Millis> {
        let ends = stock_outs.iter().filter_map(|out| Some(out.from + out.lasts?));
        stock_outs.iter().map(|out| out.from).chain(ends).filter(|at| *at > now).min()
    }
}

fn ends(out: StockOut) -> Stock {
    out.lasts.map_or(Stock::Out, |lasts| Stock::OutUntil(out.from + lasts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(from: u64, lasts: Option<u64>) -> StockOut {
        StockOut { from: Millis::secs(from), lasts: lasts.map(Millis::secs) }
    }

    #[test]
    fn stock_returns_after_the_last_of_adjoining_stock_outs() {
        let outs = [out(10, Some(5)), out(12, Some(8)), out(20, Some(1)), out(60, None)];
        let at = |seconds| Stock::at(&outs, Millis::secs(seconds));
        assert_eq!(at(0), Stock::Available);
        assert_eq!(at(10), Stock::OutUntil(Millis::secs(21)));
        assert_eq!(at(20), Stock::OutUntil(Millis::secs(21)));
        assert_eq!(at(21), Stock::Available);
        assert_eq!(at(60), Stock::Out);
        let next = |seconds| Stock::next_change(&outs, Millis::secs(seconds));
        assert_eq!(
            [next(0), next(10), next(21), next(60)],
            [Some(Millis::secs(10)), Some(Millis::secs(12)), Some(Millis::secs(60)), None]
        );
    }
}
