//! Formulas as docs/algorithms.md writes them: whole numbers, `+ - * / %`, names, functions, and a sum over all ranks.

/// What a name with these arguments stands for; a plain variable has none.
pub(crate) type Scope<'a> = dyn Fn(&str, &[i64]) -> Option<i64> + 'a;

/// The value of `formula`. `sum(e)` adds `e` up with `r` from 0 to one below the scope's `p`.
pub(crate) fn evaluate(formula: &str, scope: &Scope<'_>) -> Result<i64, String> {
    let mut reader = Reader { rest: formula, scope, rank: None };
    let value = reader.total()?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(format!("`{formula}`: what is '{}'?", reader.rest)),
    }
}

struct Reader<'a> {
    rest: &'a str,
    scope: &'a Scope<'a>,
    rank: Option<i64>,
}

impl<'a> Reader<'a> {
    fn total(&mut self) -> Result<i64, String> {
        let mut value = self.product()?;
        while let Some(sign) = self.take_any("+-") {
            let next = self.product()?;
            value += if sign == '+' { next } else { -next };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<i64, String> {
        let mut value = self.atom()?;
        while let Some(sign) = self.take_any("*/%") {
            let next = self.atom()?;
            value = match sign {
                '*' => Some(value * next),
                '/' => value.checked_div_euclid(next),
                _ => value.checked_rem_euclid(next),
            }
            .ok_or("division by zero")?;
        }
        Ok(value)
    }

    fn atom(&mut self) -> Result<i64, String> {
        if self.take_any("(").is_some() {
            let value = self.total()?;
            return self.close().map(|()| value);
        }
        let word = self.word();
        if let Ok(number) = word.parse() {
            return Ok(number);
        }
        let called = self.take_any("(").is_some();
        match (word, called) {
            ("sum", true) => self.sum(),
            ("r", false) if self.rank.is_some() => Ok(self.rank.unwrap_or_default()),
            (_, true) => {
                let arguments = self.arguments()?;
                self.look_up(word, &arguments)
            }
            (_, false) => self.look_up(word, &[]),
        }
    }

    fn sum(&mut self) -> Result<i64, String> {
        let (body, mut sum) = (self.rest, 0);
        for rank in 0..self.look_up("p", &[])? {
            (self.rest, self.rank) = (body, Some(rank));
            sum += self.total()?;
        }
        self.rank = None;
        self.close().map(|()| sum)
    }

    fn arguments(&mut self) -> Result<Vec<i64>, String> {
        let mut arguments = vec![self.total()?];
        while self.take_any(",").is_some() {
            arguments.push(self.total()?);
        }
        self.close().map(|()| arguments)
    }

    fn look_up(&self, name: &str, arguments: &[i64]) -> Result<i64, String> {
        let unknown = || format!("there is no '{name}' of {} arguments here", arguments.len());
        (self.scope)(name, arguments).ok_or_else(unknown)
    }

    fn word(&mut self) -> &'a str {
        let start = self.rest.trim_start();
        let len = start.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(start.len());
        let (word, rest) = start.split_at(len);
        self.rest = rest;
        word
    }

    fn peek(&self) -> Option<char> {
        self.rest.trim_start().chars().next()
    }

    /// Takes the next sign if it is one of these, all of one byte.
    fn take_any(&mut self, signs: &str) -> Option<char> {
        let sign = self.peek().filter(|&sign| signs.contains(sign))?;
        self.rest = &self.rest.trim_start()[1..];
        Some(sign)
    }

    fn close(&mut self) -> Result<(), String> {
        let closed = self.take_any(")").is_some();
        closed.then_some(()).ok_or_else(|| format!("no ')' before '{}'", self.rest))
    }
}

#[test]
fn formulas_have_the_usual_order_of_operations() {
    let scope = |name: &str, arguments: &[i64]| match (name, arguments) {
        ("p", []) => Some(4),
        ("n", []) => Some(10),
        ("twice", [x]) => Some(2 * x),
        ("less", [a, b]) => Some(a - b),
        _ => None,
    };
    let value = |formula: &str| evaluate(formula, &scope);
    assert_eq!(value("2*(p-1)*n"), Ok(60));
    assert_eq!(value("1 + 2 * 3 - 4 - 5"), Ok(-2));
    assert_eq!(value("n / 3 % 2"), Ok(1));
    assert_eq!(value("(1 - p) % 5"), Ok(2));
    assert_eq!(value("less(twice(n), p + 1)"), Ok(15));
    assert_eq!(value("n - sum(r * twice(r))"), Ok(10 - 2 * (1 + 4 + 9)));
    assert_eq!(value("sum(1)"), Ok(4));
}

#[test]
fn a_bad_formula_says_what_is_wrong() {
    let error = |formula: &str| evaluate(formula, &|name, _| (name == "p").then_some(4)).unwrap_err();
    assert_eq!(error("2 * m"), "there is no 'm' of 0 arguments here");
    assert_eq!(error("log2(p)"), "there is no 'log2' of 1 arguments here");
    assert_eq!(error("(p"), "no ')' before ''");
    assert_eq!(error("p p"), "`p p`: what is ' p'?");
    assert_eq!(error("p / (p - 4)"), "division by zero");
    assert_eq!(error("r"), "there is no 'r' of 0 arguments here");
    assert_eq!(error(""), "there is no '' of 0 arguments here");
}
