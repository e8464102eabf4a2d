package main

import (
	"net/http"

	"binnacle/e2e/conformance/comparison"
	"binnacle/e2e/conformance/faults"
)

// annotations are the names of annotations that the servers read or write, or warn about.
var annotations = []string{
	"autoscaling.alpha.kubernetes.io/metrics", "autoscaling.alpha.kubernetes.io/behavior", "autoscaling.alpha.kubernetes.io/current-metrics",
	"autoscaling.alpha.kubernetes.io/conditions", "volume.beta.kubernetes.io/storage-class", "volume.beta.kubernetes.io/mount-options",
	"volume.alpha.kubernetes.io/storage-class", "pv.kubernetes.io/bound-by-controller", "storageclass.kubernetes.io/is-default-class",
	"seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/c", "container.apparmor.security.beta.kubernetes.io/c",
	"scheduler.alpha.kubernetes.io/tolerations", "scheduler.alpha.kubernetes.io/affinity", "scheduler.alpha.kubernetes.io/preferAvoidPods",
	"scheduler.alpha.kubernetes.io/node-selector", "scheduler.alpha.kubernetes.io/defaultTolerations", "security.alpha.kubernetes.io/sysctls",
	"security.alpha.kubernetes.io/unsafe-sysctls", "kubernetes.io/config.mirror", "controller.kubernetes.io/pod-deletion-cost",
	"kubernetes.io/ingress.class", "ingressclass.kubernetes.io/is-default-class", "service.kubernetes.io/topology-mode",
	"service.kubernetes.io/topology-aware-hints", "service.beta.kubernetes.io/load-balancer-source-ranges", "endpoints.kubernetes.io/over-capacity",
	"deprecated.daemonset.template.generation", "deployment.kubernetes.io/revision", "batch.kubernetes.io/job-tracking",
	"batch.kubernetes.io/cronjob-scheduled-timestamp", "kubectl.kubernetes.io/last-applied-configuration", "api-approved.kubernetes.io",
	"kubernetes.io/service-account.name", "kubernetes.io/enforce-mountable-secrets", "rbac.authorization.kubernetes.io/autoupdate",
	"apf.kubernetes.io/autoupdate-spec", "podpreset.admission.kubernetes.io/exclude", "node.alpha.kubernetes.io/ttl", "csi.volume.kubernetes.io/nodeid",
	"example.com/a", "a/b/c", "UPPER.example.com/x", "",
}

var annotationTexts = []string{
	"", "true", "false", "x", "1", "-1", "2147483648", "null", "[]", "{}", "[{}]", `{"a":1}`, "runtime/default", "unconfined", "localhost/x", "localhost/", "localhost//x", "docker/default",
	`[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1000m"}}]`, `[{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":50}}]`, `[{"type":"External","external":{"metricName":"m"}}]`, `[{"type":"Bogus"}]`,
	`[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":5,"currentAverageValue":"1"}}]`, `{"ScaleUp":{"StabilizationWindowSeconds":5}}`, `{"ScaleDown":{"Policies":[{"Type":"Bogus"}]}}`,
	`[{"type":"AbleToScale","status":"True"}]`, `[{"key":"k","operator":"Exists","effect":"NoSchedule"}]`, `[{"key":"k","operator":"Bogus"}]`, "kernel.msgmax=1", "auto", "Auto", "Disabled", "hostname", "10.0.0.0/8,x", "2020-01-01T00:00:00Z", "unapproved", "https://github.com/x/pull/1",
}

// annotate changes an annotation, or one of a pod template, by a patch or at creation.
func (k *kindRun) annotate() comparison.Step {
	name, value := faults.Pick(k.r, annotations...), faults.Pick(k.r, annotationTexts...)
	path := []string{"metadata", "annotations", name}
	if k.r.IntN(4) == 0 && lookupMap(k.schema, "properties.spec.properties.template") != nil {
		path = append([]string{"spec", "template"}, path...)
	}
	label := "annotation " + name + " " + comparison.Shorten(value, 80)
	if k.r.IntN(3) == 0 {
		object := faults.Set(k.copy(), path, value).(map[string]any)
		object = faults.Set(object, []string{"metadata", "name"}, k.name+"-annotated").(map[string]any)
		s := comparison.Step{Label: "create, " + label, Method: http.MethodPost, Path: k.collection(), Object: object, Encoding: k.anyEncoding()}
		return k.form(s.Query(k.writeQuery()), 12)
	}
	at := k.object()
	if len(k.subresources) > 0 && k.r.IntN(4) == 0 {
		at += "/status"
	}
	media, query := faults.Pick(k.r, mergePatch, mergePatch, strategicPatch, applyYAML), k.writeQuery()
	s := comparison.Step{Label: media + ": " + label, Method: http.MethodPatch, Path: at, Object: partial(nil, path, value), Encoding: comparison.JSONBody}
	if media == applyYAML {
		object := faults.Set(s.Object, []string{"apiVersion"}, k.apiVersion())
		s.Object = faults.Set(faults.Set(object, []string{"kind"}, k.kind.kind), []string{"metadata", "name"}, k.name)
		s = s.Query("fieldManager=annotator&force=true")
	}
	return k.form(s.With("Content-Type", media).Query(query), 12)
}
