{{/* Checks of the values that a schema can't express. The StatefulSet calls it, so nothing is rendered without. */}}
{{- define "meridian-agent.check" -}}
{{- $kubernetes := eq .Values.runner "kubernetes" -}}
{{- if and (not $kubernetes) (gt (int (include "meridian-agent.replicas" .)) 1) -}}
{{- fail (printf "replicas is %s: the %s runner keeps what runs in one directory, so write 1" (include "meridian-agent.replicas" .) .Values.runner) -}}
{{- end -}}
{{- if and $kubernetes (eq .Values.kubernetes.hold.method "kueue") (not .Values.kubernetes.hold.localQueue) -}}
{{- fail "kubernetes.hold.localQueue is missing: the cluster's own Kueue admits a gang in a LocalQueue of its namespace" -}}
{{- end -}}
{{- if and $kubernetes (eq .Values.kubernetes.hold.method "kueue") .Values.kubernetes.provisioningRequests -}}
{{- fail "kubernetes.hold.method is kueue, which holds room on nodes that are there: it doesn't go with kubernetes.provisioningRequests" -}}
{{- end -}}
{{- if and (eq .Values.runner "simulated") (not .Values.fleet) -}}
{{- fail "fleet is missing: a simulated cluster has only the nodes that it names" -}}
{{- end -}}
{{- if .Values.join.issuer -}}
{{- if not (and .Values.join.audience .Values.manager.caCertificate) -}}
{{- fail "join.issuer needs join.audience and manager.caCertificate: the token names the audience, and the certificate says who the manager is" -}}
{{- end -}}
{{- else if .Values.join.enabled -}}
{{- if not (or .Values.join.secretName (and .Values.join.token .Values.join.caPin)) -}}
{{- fail (printf "nothing says how the agent joins. Run `meridian cluster join %s --region %s --jurisdiction %s` and write its token and --ca-pin into join.token and join.caPin, or name a Secret in join.secretName; or write join.enabled=false if the volume has the identity already" .Values.cluster .Values.region (.Values.jurisdiction | default "AREA")) -}}
{{- end -}}
{{- if gt (int (include "meridian-agent.replicas" .)) 1 -}}
{{- fail "a token joins one replica, and replicas is more than 1: use join.issuer, or write replicas=1" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "meridian-agent.replicas" -}}
{{- if not (kindIs "invalid" .Values.replicas) -}}{{ .Values.replicas }}
{{- else if and (eq .Values.runner "kubernetes") .Values.join.issuer -}}2
{{- else -}}1
{{- end -}}
{{- end -}}

{{/* Whether a Job joins by token before the agent starts. */}}
{{- define "meridian-agent.joinsByToken" -}}
{{- if and .Values.join.enabled (not .Values.join.issuer) -}}yes{{- end -}}
{{- end -}}

{{- define "meridian-agent.joinSecret" -}}
{{- .Values.join.secretName | default (printf "%s-join" .Release.Name) -}}
{{- end -}}

{{- define "meridian-agent.managerPort" -}}
{{- $host := (urlParse .Values.manager.url).host -}}
{{- if regexMatch ":[0-9]+$" $host -}}{{- regexFind "[0-9]+$" $host -}}{{- else -}}443{{- end -}}
{{- end -}}

{{- define "meridian-agent.selector" -}}
app.kubernetes.io/name: meridian-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. Those of the values come last, so that a key which both have is the chart's. */}}
{{- define "meridian-agent.labels" -}}
{{- $own := include "meridian-agent.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "meridian" -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) -}}
{{- merge (dict) $own .Values.labels | toYaml -}}
{{- end -}}

{{- define "meridian-agent.podLabels" -}}
{{- merge (dict) (include "meridian-agent.selector" . | fromYaml) .Values.labels | toYaml -}}
{{- end -}}

{{- define "meridian-agent.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "meridian-agent.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary .Release.Name "default") -}}
{{- end -}}

{{/* PriorityClasses belong to the whole cluster. */}}
{{- define "meridian-agent.placeholderClass" -}}
{{ .Release.Namespace }}-{{ .Release.Name }}-placeholder
{{- end -}}

{{/* The claim of the first pod of the StatefulSet, as Kubernetes names it. */}}
{{- define "meridian-agent.claim" -}}
data-{{ .Release.Name }}-0
{{- end -}}

{{- define "meridian-agent.claimSpec" -}}
accessModes: [{{ .Values.persistence.accessMode }}]
{{- with .Values.persistence.storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .Values.persistence.size }}
{{- end -}}

{{- define "meridian-agent.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "meridian-agent.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "meridian-agent.settings" -}}
{{- $settings := dict "manager" .Values.manager.url "region" .Values.region -}}
{{- $_ := set $settings "runner" .Values.runner -}}
{{- $_ := set $settings "log-format" .Values.logFormat -}}
{{- $_ := set $settings "metrics-listen" (printf "0.0.0.0:%v" .Values.metrics.port) -}}
{{- if eq .Values.runner "simulated" -}}{{- $_ := set $settings "speed" .Values.speed -}}{{- end -}}
{{- if .Values.fleet -}}{{- $_ := set $settings "fleet" "/etc/meridian-agent/fleet.yaml" -}}{{- end -}}
{{- with .Values.nodeReplacementWait -}}{{- $_ := set $settings "node-replacement-wait" . -}}{{- end -}}
{{- if eq .Values.runner "kubernetes" -}}
{{- $_ := set $settings "lease-name" .Release.Name -}}
{{- if and .Values.kubernetes.provisioningRequests .Values.fleet -}}
{{- $_ := set $settings "provider" "provisioning-request" -}}
{{- $_ := set $settings "provisioning-config" "/etc/meridian-agent/provisioning.yaml" -}}
{{- end -}}
{{- with .Values.kubernetes.hold -}}
{{- if ne .method "ledger" -}}{{- $_ := set $settings "hold" .method -}}{{- end -}}
{{- if eq .method "kueue" -}}{{- $_ := set $settings "local-queue" .localQueue -}}{{- end -}}
{{- if eq .method "placeholders" -}}
{{- $_ := set $settings "placeholder-image" .placeholderImage -}}
{{- $_ := set $settings "placeholder-priority-class" (include "meridian-agent.placeholderClass" $) -}}
{{- end -}}
{{- end -}}
{{- $copied := list -}}
{{- if .Values.kubernetes.configMaps.copy -}}{{- $copied = append $copied "config-maps" -}}{{- end -}}
{{- if .Values.kubernetes.secrets.copy -}}{{- $copied = append $copied "secrets" -}}{{- end -}}
{{- if $copied -}}{{- $_ := set $settings "copy-references" $copied -}}{{- end -}}
{{- $labels := list -}}
{{- range $name, $value := .Values.kubernetes.nodeSelector -}}{{- $labels = append $labels (printf "%s=%s" $name $value) -}}{{- end -}}
{{- if .Values.kubernetes.podGuard.enabled -}}{{- $_ := set $settings "pod-guard-image" (include "meridian-agent.image" .) -}}{{- end -}}
{{- if $labels -}}{{- $_ := set $settings "node-selector" (join "," $labels) -}}{{- end -}}
{{- end -}}
{{- $settings | toYaml -}}
{{- end -}}

{{- define "meridian-agent.placement" -}}
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
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
