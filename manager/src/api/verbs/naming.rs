//! Names generated from `generateName`.

use meridian_objects::Object;
use meridian_shared::ids::Uid;
use sha2::{Digest as _, Sha256};

/// Kubernetes' alphabet for generated names: no vowels, so no words, and no two characters that look the
/// same.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters to add, as in Kubernetes.
const SUFFIX_CHARS: usize = 5;
/// Characters to add if an idempotency key determines the name: ten make a collision of two requests
/// impossible in practice.
const KEYED_SUFFIX_CHARS: usize = 10;
/// Longest generated name: it must stay a label.
const NAME_CHARS_MAX: usize = 63;
/// Most attempts with another suffix. With a million objects of one prefix, one in fourteen attempts
/// collides.
pub(crate) const TRIES: usize = 8;

/// Gives `object` a random name if it has only a prefix. Returns whether it got one.
pub(crate) fn random(object: &mut Object) -> bool {
    take(object, uuid::Uuid::new_v4().as_u128(), SUFFIX_CHARS)
}

/// A random name for an object that has only a prefix.
pub(crate) fn random_for(object: &Object) -> String {
    name(object.generate_name.as_deref().unwrap_or_default(), uuid::Uuid::new_v4().as_u128(), SUFFIX_CHARS)
}

/// Gives `object` the name that `key` and its index in the request determine, so that a repeated request
/// creates no second object.
pub(crate) fn keyed(object: &mut Object, user: &str, key: &str, index: usize) -> bool {
    let mut hash = Sha256::new();
    for part in [user.as_bytes(), key.as_bytes(), &(index as u64).to_be_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let (seed, _) = digest.split_at(16);
    take(object, u128::from_be_bytes(seed.try_into().expect("split at 16")), KEYED_SUFFIX_CHARS)
}

fn take(object: &mut Object, seed: u128, chars: usize) -> bool {
    let Some(prefix) = object.generate_name.as_deref().filter(|_| object.name.is_empty()) else {
        return false;
    };
    let name = name(prefix, seed, chars);
    object.set_name(&name);
    true
}

fn name(prefix: &str, mut seed: u128, chars: usize) -> String {
    let mut name: String = prefix.chars().take(NAME_CHARS_MAX - chars).collect();
    for _ in 0..chars {
        name.push(char::from(
            ALPHABET[usize::try_from(seed % ALPHABET.len() as u128).expect("smaller than the alphabet")],
        ));
        seed /= ALPHABET.len() as u128;
    }
    name
}

/// A uid for a new object.
pub(crate) fn uid() -> Uid {
    Uid(uuid::Uuid::new_v4().as_u128())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(prefix: &str) -> Object {
        Object::from_value(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": prefix}}),
        )
        .unwrap()
        .0
    }

    #[test]
    fn a_name_is_generated_once_and_fits_a_label() {
        let (mut one, mut two) = (object("team-"), object("team-"));
        assert!(random(&mut one) && random(&mut two) && !random(&mut one));
        assert!(one.name != two.name && one.name.len() == 10 && one.name.starts_with("team-"));
        assert!(one.name[5..].bytes().all(|b| ALPHABET.contains(&b)));
        let mut long = object(&"a".repeat(58));
        assert!(keyed(&mut long, "u", "k", 0));
        assert_eq!(long.name.len(), NAME_CHARS_MAX);
    }

    #[test]
    fn user_key_and_index_determine_the_name() {
        let make = |user, key, index| {
            let mut made = object("t-");
            keyed(&mut made, user, key, index);
            made.name
        };
        assert_eq!(make("u", "k", 1), make("u", "k", 1));
        assert!(
            make("u", "k", 1) != make("u", "k", 2)
                && make("u", "k1", 1) != make("uk", "1", 1)
                && make("u", "k", 1) != make("v", "k", 1)
        );
    }
}
