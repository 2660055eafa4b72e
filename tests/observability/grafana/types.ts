// Grafana's published types of what our dashboards contain. check.mjs makes a JSON schema of them.
import type { Dashboard } from '@grafana/schema/dist/types/raw/dashboard/x/types.gen';
import type { MapLayerOptions } from '@grafana/schema/dist/types/common/common.gen';
import type { Options as Map } from '@grafana/schema/dist/types/raw/composable/geomap/panelcfg/x/types.gen';
import type { Options as Stat } from '@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen';
import type {
  FieldConfig as TimeSeriesFields,
  Options as TimeSeries,
} from '@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen';

export type Classic = Dashboard;
// The package has two types of layers with one name, which the generator refuses in one schema.
export type GeomapOptions = Omit<Map, 'basemap' | 'layers'>;
export type GeomapLayer = MapLayerOptions;
export type StatOptions = Stat;
export type TimeSeriesOptions = TimeSeries;
export type TimeSeriesCustom = TimeSeriesFields;
