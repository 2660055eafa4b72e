//! Where Google Cloud's regions are, for maps. <https://cloud.google.com/about/locations>

/// Name, latitude and longitude in degrees, to the next city. Regions that are not here aren't on maps.
pub(crate) const REGIONS: [(&str, f64, f64); 42] = [
    ("africa-south1", -26.2, 28.05),
    ("asia-east1", 24.05, 120.52),
    ("asia-east2", 22.32, 114.17),
    ("asia-northeast1", 35.68, 139.69),
    ("asia-northeast2", 34.69, 135.5),
    ("asia-northeast3", 37.57, 126.98),
    ("asia-south1", 19.08, 72.88),
    ("asia-south2", 28.61, 77.21),
    ("asia-southeast1", 1.35, 103.82),
    ("asia-southeast2", -6.21, 106.85),
    ("australia-southeast1", -33.87, 151.21),
    ("australia-southeast2", -37.81, 144.96),
    ("europe-central2", 52.23, 21.01),
    ("europe-north1", 60.57, 27.19),
    ("europe-north2", 59.33, 18.07),
    ("europe-southwest1", 40.42, -3.7),
    ("europe-west1", 50.47, 3.82),
    ("europe-west10", 52.52, 13.41),
    ("europe-west12", 45.07, 7.69),
    ("europe-west2", 51.51, -0.13),
    ("europe-west3", 50.11, 8.68),
    ("europe-west4", 53.44, 6.84),
    ("europe-west6", 47.38, 8.54),
    ("europe-west8", 45.46, 9.19),
    ("europe-west9", 48.86, 2.35),
    ("me-central1", 25.29, 51.53),
    ("me-central2", 26.43, 50.1),
    ("me-west1", 32.09, 34.78),
    ("northamerica-northeast1", 45.5, -73.57),
    ("northamerica-northeast2", 43.65, -79.38),
    ("northamerica-south1", 20.59, -100.39),
    ("southamerica-east1", -23.55, -46.63),
    ("southamerica-west1", -33.45, -70.67),
    ("us-central1", 41.26, -95.86),
    ("us-east1", 33.2, -80.01),
    ("us-east4", 39.04, -77.49),
    ("us-east5", 39.96, -83.0),
    ("us-south1", 32.78, -96.8),
    ("us-west1", 45.6, -121.18),
    ("us-west2", 34.05, -118.24),
    ("us-west3", 40.76, -111.89),
    ("us-west4", 36.17, -115.14),
];

/// Labels of the place that [`located`] adds.
pub(crate) const PLACE: [&str; 2] = ["latitude", "longitude"];

/// The expression `of` for each region, with the region's place in labels. PromQL has no table, so each
/// region is a term.
pub(crate) fn located(of: impl Fn(&str) -> String) -> String {
    let terms = REGIONS.iter().map(|(region, latitude, longitude)| {
        let labelled = |series: String, label: &str, value: &f64| {
            format!(r#"label_replace({series}, "{label}", "{value}", "", "")"#)
        };
        let [north, east] = PLACE;
        labelled(labelled(of(&format!(r#"region="{region}""#)), north, latitude), east, longitude)
    });
    terms.collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_region_has_one_place_on_earth() {
        assert!(REGIONS.windows(2).all(|pair| pair[0].0 < pair[1].0), "by name, each once");
        for (region, latitude, longitude) in REGIONS {
            assert!(latitude.abs() < 90.0 && longitude.abs() <= 180.0, "{region}");
            let is_american = region.starts_with("us-");
            assert!(!is_american || (longitude < 0.0 && latitude > 0.0), "{region}");
            assert!(!region.starts_with("europe-") || latitude > 35.0, "{region}");
        }
    }

    #[test]
    fn a_term_says_where_its_region_is() {
        let query = located(|selector| format!("up{{{selector}}}"));
        let term = concat!(
            r#"label_replace(label_replace(up{region="us-east4"}, "latitude", "39.04", "", ""), "#,
            r#""longitude", "-77.49", "", "")"#
        );
        assert!(query.contains(term) && query.matches(" or ").count() == REGIONS.len() - 1);
    }
}
