// What a dashboard of pulsetrain may be: Grafana's own types, with each kind of panel tied to its own options.
// Grafana's Panel leaves options, field settings and queries open, so that a misspelt one would pass.

import type {
  AnnotationQuery,
  Dashboard,
  DataQuery,
  FieldConfig,
  FieldConfigSource,
  Panel,
  RowPanel,
  VariableModel,
} from '@grafana/schema';
import type * as bargauge from '@grafana/schema/dist/types/raw/composable/bargauge/panelcfg/x/types.gen';
import type * as stat from '@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen';
import type * as statetimeline from '@grafana/schema/dist/types/raw/composable/statetimeline/panelcfg/x/types.gen';
import type * as table from '@grafana/schema/dist/types/raw/composable/table/panelcfg/x/types.gen';
import type * as timeseries from '@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen';

interface DataSource {
  type: 'prometheus';
  uid: string;
}

// The query of the Prometheus data source; its types live in a package that is not published.
interface PrometheusQuery extends Omit<DataQuery, 'datasource'> {
  datasource?: DataSource;
  expr: string;
  instant?: boolean;
  range?: boolean;
  format?: 'time_series' | 'table' | 'heatmap';
  legendFormat?: string;
  interval?: string;
}

interface DataLink {
  title: string;
  url: string;
  targetBlank?: boolean;
}

interface Settings<Custom> extends Omit<FieldConfig, 'custom' | 'links'> {
  custom?: Custom;
  links?: DataLink[];
}

interface Drawn<Type extends string, Options, Custom> extends Omit<Panel, 'type' | 'datasource' | 'options' | 'fieldConfig' | 'targets'> {
  type: Type;
  id: number;
  title: string;
  description: string;
  gridPos: NonNullable<Panel['gridPos']>;
  datasource: DataSource;
  options: Options;
  fieldConfig: Omit<FieldConfigSource, 'defaults'> & { defaults: Settings<Custom> };
  targets: PrometheusQuery[];
}

type AnyPanel =
  | Drawn<'timeseries', timeseries.Options, timeseries.FieldConfig>
  | Drawn<'stat', stat.Options, Record<string, never>>
  | Drawn<'state-timeline', statetimeline.Options, statetimeline.FieldConfig>
  | Drawn<'bargauge', bargauge.Options, Record<string, never>>
  | Drawn<'table', table.Options, table.FieldConfig>;

interface Row extends Omit<RowPanel, 'panels' | 'datasource'> {
  panels: AnyPanel[];
}

// The Prometheus data source keeps these beside its query.
interface EventQuery extends Omit<AnnotationQuery, 'datasource' | 'target'> {
  datasource: DataSource;
  target: PrometheusQuery;
  textFormat?: string;
  titleFormat?: string;
  tagKeys?: string;
}

interface Variable extends Omit<VariableModel, 'datasource'> {
  datasource?: DataSource;
}

export interface PulsetrainDashboard extends Omit<Dashboard, 'panels' | 'annotations' | 'templating'> {
  panels: Array<AnyPanel | Row>;
  annotations: { list: EventQuery[] };
  templating: { list: Variable[] };
}
