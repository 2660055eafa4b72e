{{/* Checks of the values that a schema can't express. Every template of a pod calls it, so nothing is rendered without. */}}
{{- define "meridian-manager.check" -}}
{{- $url := urlParse .Values.url -}}
{{- if ne $url.scheme "https" -}}
{{- fail (printf "url is `%s`: write the URL that agents and users call, such as https://manager.example.com:7443" .Values.url) -}}
{{- end -}}
{{- if ne (include "meridian-manager.port" .) (toString .Values.service.port) -}}
{{- fail (printf "url has port %s and service.port is %v: they must be equal, because the manager puts its own port into kubeconfigs and join commands" (include "meridian-manager.port" .) .Values.service.port) -}}
{{- end -}}
{{- if ne .Values.journal.kind "redb" -}}
{{- fail "journal.kind: `postgres` isn't built yet; write `redb`" -}}
{{- end -}}
{{- if and .Values.kubernetes.hostClusters (not .Values.kubernetes.enabled) -}}
{{- fail "kubernetes.hostClusters needs kubernetes.enabled: MultiKueueClusters are objects of the management cluster" -}}
{{- end -}}
{{- if and (include "meridian-manager.copied" .) (not .Values.kubernetes.enabled) -}}
{{- fail "kubernetes.copy copies from a management cluster, and there is none: write kubernetes.enabled=true too" -}}
{{- end -}}
{{- range .Values.clusters -}}
{{- if hasKey .spec "cordoned" -}}
{{- fail (printf "clusters: %s has spec.cordoned, which would undo an operator's command at each start: remove it, and use `meridian cluster cordon`" .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- if .Values.kubernetes.enabled -}}
{{- with lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "meridian-management-cluster" -}}
{{- $claim := dig "annotations" "meridian.dev/manager" "" .metadata -}}
{{- if and $claim (not (hasPrefix (printf "%s/%s " $.Release.Namespace $.Release.Name) $claim)) -}}
{{- fail (printf "another manager acts for this management cluster: `%s` (namespace, Lease and authority). A cluster has one manager: use that one. If it was uninstalled or has moved, release its claim with `kubectl annotate clusterrole meridian-management-cluster meridian.dev/manager-`" $claim) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Port of the URL; 443 where it names none. */}}
{{- define "meridian-manager.port" -}}
{{- $host := (urlParse .Values.url).host -}}
{{- if regexMatch ":[0-9]+$" $host -}}{{- regexFind "[0-9]+$" $host -}}{{- else -}}443{{- end -}}
{{- end -}}

{{- define "meridian-manager.host" -}}
{{- (urlParse .Values.url).hostname -}}
{{- end -}}

{{- define "meridian-manager.selector" -}}
app.kubernetes.io/name: meridian-manager
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. Those of the values come last, so that a key which both have is the chart's. */}}
{{- define "meridian-manager.labels" -}}
{{- $own := include "meridian-manager.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "meridian" -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) -}}
{{- merge (dict) $own .Values.labels | toYaml -}}
{{- end -}}

{{- define "meridian-manager.podLabels" -}}
{{- merge (dict) (include "meridian-manager.selector" . | fromYaml) .Values.labels | toYaml -}}
{{- end -}}

{{- define "meridian-manager.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "meridian-manager.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary .Release.Name "default") -}}
{{- end -}}

{{/* The claim of the first pod of the StatefulSet, as Kubernetes names it. */}}
{{- define "meridian-manager.claim" -}}
data-{{ .Release.Name }}-0
{{- end -}}

{{- define "meridian-manager.claimSpec" -}}
accessModes: [{{ .Values.persistence.accessMode }}]
{{- with .Values.persistence.storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .Values.persistence.size }}
{{- end -}}

{{/* The manager's settings file. */}}
{{- define "meridian-manager.settings" -}}
{{- $service := printf "%s.%s" .Release.Name .Release.Namespace -}}
{{- $names := concat (list (include "meridian-manager.host" .)) .Values.advertise -}}
{{- $names = concat $names (list .Release.Name $service (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service)) -}}
{{- with .Values.service.loadBalancerIP -}}{{- $names = append $names . -}}{{- end -}}
{{- $settings := dict "advertise" (uniq $names) "residency" .Values.residency "log-format" .Values.logFormat -}}
{{- with .Values.jurisdiction -}}{{- $_ := set $settings "jurisdiction" . -}}{{- end -}}
{{- with .Values.otlpEndpoint -}}{{- $_ := set $settings "otlp-endpoint" . -}}{{- end -}}
{{- with .Values.caConfigMap -}}{{- $_ := set $settings "ca-config-map" . -}}{{- end -}}
{{- with .Values.joinByIssuer -}}{{- $_ := set $settings "join-by-issuer" . -}}{{- end -}}
{{- merge $settings .Values.config | toYaml -}}
{{- end -}}

{{- define "meridian-manager.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
# The volume's files belong to this user already; another pass over them at each start would only delay it.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "meridian-manager.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The manager's container, but for its name and arguments. Takes a dict: `root`, and `firstStart`, which needs no objects. */}}
{{- define "meridian-manager.container" -}}
{{- $root := .root -}}
image: {{ include "meridian-manager.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
ports:
- name: https
  containerPort: {{ include "meridian-manager.port" $root }}
startupProbe:
  httpGet: {path: /healthz, port: https, scheme: HTTPS}
  periodSeconds: 2
  # A long journal takes a while to read: ten minutes.
  failureThreshold: 300
volumeMounts:
- name: data
  mountPath: /var/lib/meridian-manager
- name: settings
  mountPath: /etc/meridian-manager
  readOnly: true
{{- if and (include "meridian-manager.hasObjects" $root) (not .firstStart) }}
- name: objects
  mountPath: /etc/meridian-objects
  readOnly: true
{{- end }}
resources: {{- $root.Values.resources | toYaml | nindent 2 }}
securityContext: {{- include "meridian-manager.securityContext" $root | nindent 2 }}
{{- end -}}

{{/* Whether the pod has files of objects, which the manager applies. */}}
{{- define "meridian-manager.hasObjects" -}}
{{- if or .Values.clusters .Values.objects -}}true{{- end -}}
{{- end -}}

{{/* What worker clusters get copies of, as the setting names it. */}}
{{- define "meridian-manager.copied" -}}
{{- $copied := list -}}
{{- if .Values.kubernetes.copy.configMaps -}}{{- $copied = append $copied "config-maps" -}}{{- end -}}
{{- if .Values.kubernetes.copy.secrets -}}{{- $copied = append $copied "secrets" -}}{{- end -}}
{{- join "," $copied -}}
{{- end -}}

{{/* Takes a dict: `root`, and `firstStart`, which makes the journal. */}}
{{- define "meridian-manager.arguments" -}}
{{- $listen := .root.Values.listenAddress -}}
- manager
- --config=/etc/meridian-manager/manager.yaml
- --data-dir=/var/lib/meridian-manager
- --listen={{ contains ":" $listen | ternary (printf "[%s]" $listen) $listen }}:{{ include "meridian-manager.port" .root }}
{{- if and (include "meridian-manager.hasObjects" .root) (not .firstStart) }}
- --objects=/etc/meridian-objects
{{- end }}
{{- if .firstStart }}
- --init
{{- else if .root.Values.kubernetes.enabled }}
- --kubernetes
- --lease-name={{ .root.Release.Name }}
{{- with include "meridian-manager.copied" .root }}
- --copy-references={{ . }}
{{- end }}
{{- if .root.Values.admission.webhook }}
- --admission-webhook={{ .root.Release.Namespace }}/{{ .root.Release.Name }}:{{ .root.Values.service.port }}
{{- end }}
{{- with .root.Values.kubernetes.hostClusters }}
- --host-clusters={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "meridian-manager.volumes" -}}
- name: settings
  configMap:
    name: {{ .configMap }}
    items:
    - key: manager.yaml
      path: manager.yaml
{{- end -}}

{{- define "meridian-manager.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "meridian-manager.selector" $ | fromYaml)) }}
{{- range . }}
- {{- merge (dict) . $selector | toYaml | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Whether this release has the definitions of Kueue's kinds; empty for no. With `auto`, one that another manager made means
that Kueue is there, and then none is touched. `helm template` asks no cluster and has them all. */}}
{{- define "meridian-manager.kueueDefinitions" -}}
{{- $has := .Values.crds.kueue | toString -}}
{{- if eq $has "auto" -}}
{{- $has = "true" -}}
{{- range $path, $_ := .Files.Glob "files/crds/kueue/*.yaml" -}}
{{- $name := ($.Files.Get $path | fromYaml).metadata.name -}}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name -}}
{{- if ne (dig "labels" "app.kubernetes.io/part-of" "" .metadata) "meridian" -}}
{{- $has = "false" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $has "true" -}}true{{- end -}}
{{- end -}}
