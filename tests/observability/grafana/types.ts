// Grafana's published types of what our dashboards contain. check.mjs makes a JSON schema of them.
import type { Dashboard } from '@grafana/schema/dist/types/raw/dashboard/x/types.gen';
import type { Options as Stat } from '@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type {
  FieldConfig as TimeSeriesFields,
  Options as TimeSeries,
} from '@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

export type Classic = Dashboard;
export type StatOptions = Stat;
export type TimeSeriesOptions = TimeSeries;
export type TimeSeriesCustom = TimeSeriesFields;
