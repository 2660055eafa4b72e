//! Writes all mutants of a file into it, each behind a switch, so that one build has them all.
//!
//! `a < b` becomes `(if crate::mutation::on(7) { a == b } else { a < b })`, and a body that is replaced
//! starts with `if crate::mutation::on(8) { return 0; }`. Every mutant copies the text as it was, because one
//! is on at a time.

use crate::list::{Genre, Mutant, Place};
use proc_macro2::Span;
use std::collections::BTreeSet;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A file with its mutants.
#[derive(Debug, Default)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    marks: Vec<Mark>,
    /// Mutants that can't stand behind a switch: in constants, in `if let` chains, in macros.
    pub(crate) unplaced: Vec<usize>,
}

/// A part of the new text that exists for a mutant.
#[derive(Debug)]
struct Mark {
    range: Range<usize>,
    mutant: usize,
    /// Whether the text was inserted for this mutant alone. If not, it has the original in it.
    own: bool,
}

impl Rewritten {
    /// The mutants that an error of the compiler at `at` comes from.
    pub(crate) fn blamed(&self, at: &Range<usize>) -> Vec<usize> {
        let holds = |mark: &&Mark| mark.range.start <= at.start && at.end <= mark.range.end;
        if let Some(mark) = self.marks.iter().filter(|mark| mark.own).find(holds) {
            return vec![mark.mutant];
        }
        let around: Vec<&Mark> = self.marks.iter().filter(holds).collect();
        let Some(least) = around.iter().map(|mark| mark.range.len()).min() else { return Vec::new() };
        around.iter().filter(|mark| mark.range.len() == least).map(|mark| mark.mutant).collect()
    }
}

/// Text that is inserted at an offset of the original. At one offset, what ends comes before what begins.
#[derive(Debug)]
struct Insertion {
    at: usize,
    /// Place among the insertions at `at`: inner ends, outer ends, outer beginnings, inner beginnings.
    order: isize,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    /// Text of one mutant.
    Own(usize, String),
    Begin(usize),
    End(usize),
}

/// Writes `mutants`, which are numbers and changes of this file, into `text`. A `const fn` becomes a
/// common one, as it asks a switch, unless its name is among `constants`.
pub(crate) fn rewrite(
    text: &str,
    mutants: &[(usize, &Mutant)],
    constants: &BTreeSet<String>,
) -> syn::Result<Rewritten> {
    let mut sites = Sites { kept: constants.clone(), ..Sites::default() };
    sites.visit_file(&syn::parse_file(text)?);
    let mut out = Rewritten::default();
    let mut insertions = Vec::new();
    for word in &sites.dropped {
        let comment = |at, text: &str| Insertion { at, order: 0, parts: vec![Part::Text(text.into())] };
        insertions.extend([comment(word.start, "/*"), comment(word.end, "*/")]);
    }
    for (number, mutant) in mutants {
        let span = offset(text, mutant.span.start)..offset(text, mutant.span.end);
        match sites.insertions(text, *number, mutant, &span) {
            Some(new) => insertions.extend(new),
            None => out.unplaced.push(*number),
        }
    }
    insertions.sort_by_key(|insertion| (insertion.at, insertion.order));
    let mut begun: Vec<(usize, usize)> = Vec::new();
    let mut from = 0;
    for insertion in insertions {
        out.text.push_str(&text[from..insertion.at]);
        from = insertion.at;
        for part in insertion.parts {
            let start = out.text.len();
            match part {
                Part::Text(text) => out.text.push_str(&text),
                Part::Own(mutant, text) => {
                    out.text.push_str(&text);
                    out.marks.push(Mark { range: start..out.text.len(), mutant, own: true });
                }
                Part::Begin(mutant) => begun.push((mutant, start)),
                Part::End(mutant) => {
                    let begin = begun.iter().rposition(|(of, _)| *of == mutant).map(|at| begun.remove(at).1);
                    out.marks.push(Mark { range: begin.unwrap_or(start)..start, mutant, own: false });
                }
            }
        }
    }
    out.text.push_str(&text[from..]);
    Ok(out)
}

/// Byte offset of a line and a column.
fn offset(text: &str, place: Place) -> usize {
    let line_start: usize = text.split_inclusive('\n').take(place.line - 1).map(str::len).sum();
    let line = &text[line_start..];
    line_start + line.char_indices().nth(place.column - 1).map_or(line.len(), |(at, _)| at)
}

/// An arm that a mutant may leave out.
#[derive(Debug)]
struct Arm {
    pattern: Range<usize>,
    /// The guard, and whether it has a `let`.
    guard: Option<(Range<usize>, bool)>,
    /// The whole match. Without the arm it may not cover each value.
    of: Range<usize>,
}

/// Where mutants can stand in one file.
#[derive(Debug, Default)]
struct Sites {
    /// Bodies of functions: what is between the braces, and the start of the first statement.
    bodies: Vec<(Range<usize>, usize)>,
    /// Operators, guards and fields, each with the expression that is written anew.
    wholes: Vec<(Range<usize>, Range<usize>)>,
    arms: Vec<Arm>,
    /// Depth of what is computed at compile time, where no switch can be asked.
    constants: usize,
    /// Functions that stay `const`.
    kept: BTreeSet<String>,
    /// Each `const` of the others.
    dropped: Vec<Range<usize>>,
}

impl Sites {
    fn insertions(
        &self,
        text: &str,
        number: usize,
        mutant: &Mutant,
        span: &Range<usize>,
    ) -> Option<Vec<Insertion>> {
        let on = format!("crate::mutation::on({number})");
        let replacement = &mutant.replacement;
        match mutant.genre {
            Genre::FnValue => {
                let (body, _) = self.bodies.iter().find(|(_, first)| *first == span.start)?;
                let own = Part::Own(number, format!(" if {on} {{ return {replacement}; }}"));
                let begin = Insertion { at: body.start, order: 0, parts: vec![Part::Begin(number), own] };
                Some(vec![begin, Insertion { at: body.end, order: 0, parts: vec![Part::End(number)] }])
            }
            Genre::MatchArm => {
                let arm = self.arms.iter().find(|arm| arm.pattern.start == span.start)?;
                // The switch goes before everything else that begins here.
                let open =
                    |at, text| Insertion { at, order: isize::MIN / 2, parts: vec![Part::Own(number, text)] };
                let mut insertions = around(number, &arm.of, 0, Part::Text(String::new()), "");
                match &arm.guard {
                    Some((guard, false)) => {
                        insertions.push(open(guard.start, format!("!{on} && (")));
                        let close = Part::Text(")".into());
                        insertions.push(Insertion { at: guard.end, order: -1, parts: vec![close] });
                    }
                    Some((guard, true)) => insertions.push(open(guard.start, format!("!{on} && "))),
                    None => insertions.push(open(arm.pattern.end, format!(" if !{on}"))),
                }
                Some(insertions)
            }
            Genre::MatchArmGuard => {
                let (_, whole) = self.wholes.iter().find(|(place, _)| place == span)?;
                let open = if replacement == "true" { format!("({on} || (") } else { format!("(!{on} && (") };
                Some(around(number, whole, 1, Part::Text(open), "))"))
            }
            Genre::BinaryOperator | Genre::UnaryOperator | Genre::StructField => {
                // The span of a field has its comma.
                let place = span.start..span.start + text[span.clone()].trim_end_matches(',').len();
                let (_, whole) = self.wholes.iter().find(|(known, _)| *known == place)?;
                let copy =
                    format!("{}{replacement}{}", &text[whole.start..span.start], &text[span.end..whole.end]);
                Some(around(
                    number,
                    whole,
                    0,
                    Part::Own(number, format!("(if {on} {{ {copy} }} else {{ ")),
                    " })",
                ))
            }
        }
    }

    /// Remembers that a mutant of `place` writes `whole` anew.
    fn note(&mut self, place: Range<usize>, whole: Span) {
        if self.constants == 0 {
            self.wholes.push((place, whole.byte_range()));
        }
    }

    /// Remembers a body that a mutant may leave at once. `impl Trait` is one type only, so another value
    /// has no place in it.
    fn note_body(&mut self, is_const: bool, signature: &syn::Signature, block: &syn::Block) {
        let of_one_type = match &signature.output {
            syn::ReturnType::Type(_, of) => matches!(**of, syn::Type::ImplTrait(_)),
            syn::ReturnType::Default => false,
        };
        if let (false, Some(first)) = (is_const || of_one_type || self.constants > 0, block.stmts.first()) {
            let braces = block.brace_token.span;
            let inside = braces.open().byte_range().end..braces.close().byte_range().start;
            self.bodies.push((inside, first.span().byte_range().start));
        }
    }

    /// Whether a function stays `const`.
    fn is_const(&mut self, signature: &syn::Signature) -> bool {
        let Some(word) = &signature.constness else { return false };
        let kept = self.kept.contains(&signature.ident.to_string());
        if !kept {
            self.dropped.push(word.span().byte_range());
        }
        kept
    }

    fn in_constant(&mut self, is_const: bool, visit: impl FnOnce(&mut Self)) {
        self.constants += usize::from(is_const);
        visit(self);
        self.constants -= usize::from(is_const);
    }
}

/// Insertions around `whole`. What has more around it stands outside of what has less.
fn around(number: usize, whole: &Range<usize>, outside: isize, open: Part, close: &str) -> Vec<Insertion> {
    let width = 2 * whole.len() as isize + outside;
    vec![
        Insertion { at: whole.start, order: isize::MAX / 2 - width, parts: vec![Part::Begin(number), open] },
        Insertion {
            at: whole.end,
            order: isize::MIN + width,
            parts: vec![Part::Text(close.into()), Part::End(number)],
        },
    ]
}

/// Whether a chain of `&&` has a `let` in it.
fn has_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Sites {
    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        if !has_let(&node.left) && !has_let(&node.right) {
            self.note(node.op.span().byte_range(), node.span());
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        self.note(node.op.span().byte_range(), node.span());
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        for field in &node.fields {
            self.note(field.span().byte_range(), node.span());
        }
        visit::visit_expr_struct(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast syn::ExprMatch) {
        for arm in &node.arms {
            let guard = arm.guard.as_ref().map(|(_, guard)| guard);
            if self.constants == 0 {
                let (pattern, of) = (arm.pat.span().byte_range(), node.span().byte_range());
                let guard = guard.map(|guard| (guard.span().byte_range(), has_let(guard)));
                self.arms.push(Arm { pattern, guard, of });
            }
            if let Some(guard) = guard.filter(|guard| !has_let(guard)) {
                self.note(guard.span().byte_range(), guard.span());
            }
        }
        visit::visit_expr_match(self, node);
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        let is_const = self.is_const(&node.sig);
        self.note_body(is_const, &node.sig, &node.block);
        self.in_constant(is_const, |sites| visit::visit_item_fn(sites, node));
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        let is_const = self.is_const(&node.sig);
        self.note_body(is_const, &node.sig, &node.block);
        self.in_constant(is_const, |sites| visit::visit_impl_item_fn(sites, node));
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default {
            self.note_body(false, &node.sig, block);
        }
        visit::visit_trait_item_fn(self, node);
    }

    fn visit_item_const(&mut self, node: &'ast syn::ItemConst) {
        self.in_constant(true, |sites| visit::visit_item_const(sites, node));
    }

    fn visit_impl_item_const(&mut self, node: &'ast syn::ImplItemConst) {
        self.in_constant(true, |sites| visit::visit_impl_item_const(sites, node));
    }

    fn visit_item_static(&mut self, node: &'ast syn::ItemStatic) {
        self.in_constant(true, |sites| visit::visit_item_static(sites, node));
    }

    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
    }
}

#[cfg(test)]
mod tests;
