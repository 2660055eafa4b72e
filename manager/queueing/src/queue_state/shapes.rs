//! Interned shapes with reference counts.

use crate::model::{Shape, ShapeId};
use crate::names::Id;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    /// Shapes with the number of their workloads.
    list: Vec<Option<(Arc<Shape>, u32)>>,
    ids: BTreeMap<Arc<Shape>, ShapeId>,
    free: Vec<ShapeId>,
}

impl Shapes {
    /// The number of a shape. Equal shapes have the same number.
    pub(super) fn intern(&mut self, shape: Shape) -> ShapeId {
        if let Some(id) = self.ids.get(&shape) {
            return *id;
        }
        let shape = Arc::new(shape);
        let entry = Some((shape.clone(), 0));
        let id = match self.free.pop() {
            Some(id) => {
                self.list[id.index()] = entry;
                id
            }
            None => {
                self.list.push(entry);
                ShapeId(u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.ids.insert(shape, id);
        id
    }

    pub(super) fn get(&self, id: ShapeId) -> &Arc<Shape> {
        &self.list[id.index()].as_ref().expect("shapes live as long as their workloads").0
    }

    /// Counts one more workload of a shape.
    pub(super) fn retain(&mut self, id: ShapeId) {
        if let Some((_, workloads)) = self.list[id.index()].as_mut() {
            *workloads += 1;
        }
    }

    /// Counts one workload less. A shape without workloads is dropped, and its number is reused.
    pub(super) fn release(&mut self, id: ShapeId) {
        let Some((shape, workloads)) = self.list[id.index()].as_mut() else { return };
        *workloads -= 1;
        if *workloads == 0 {
            let shape = shape.clone();
            self.ids.remove(&shape);
            self.list[id.index()] = None;
            self.free.push(id);
        }
    }
}
