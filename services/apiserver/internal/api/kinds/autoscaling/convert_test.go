package autoscaling_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"binnacle/services/apiserver/internal/api/kinds/autoscaling"
	"binnacle/services/apiserver/internal/registry"
)

// prefix starts the keys of the annotations in which v1 keeps the fields of v2.
const prefix = "autoscaling.alpha.kubernetes.io/"

// served returns the kind in a version.
func served(t testing.TB, version string) *registry.Kind {
	t.Helper()
	for _, k := range autoscaling.Kinds(registry.Settings{}) {
		if k.Version == version {
			return k
		}
	}
	t.Fatalf("%s is not served", version)
	return nil
}

// toV2 converts to the newest version.
func toV2(t testing.TB, autoscaler *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()
	o, err := served(t, "v1").Stored.ToStored(autoscaler)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*autoscalingv2.HorizontalPodAutoscaler)
}

// toV1 converts to the older version.
func toV1(t testing.TB, autoscaler *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv1.HorizontalPodAutoscaler {
	t.Helper()
	o, err := served(t, "v1").Stored.FromStored(autoscaler)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*autoscalingv1.HorizontalPodAutoscaler)
}

// filler generates autoscalers whose metrics are valid as far as conversions depend on it.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(1, 3).MaxDepth(14).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(1_000_000)+1, resource.DecimalSI)
			_ = q.String() // caches the text, as decoding does
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<31), 0).Rfc3339Copy() },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.Raw = []byte("{}") },
		func(m *autoscalingv2.MetricSpec, c randfill.Continue) { fillMetric(m, c) },
		func(m *autoscalingv2.MetricStatus, c randfill.Continue) { fillStatus(m, c) },
		// An empty behavior is not preserved.
		func(b *autoscalingv2.HorizontalPodAutoscalerBehavior, c randfill.Continue) {
			c.FillNoCustom(b)
			if b.ScaleUp == nil && b.ScaleDown == nil {
				b.ScaleUp = &autoscalingv2.HPAScalingRules{}
			}
		},
	)
}

// quantity generates a quantity with a cached text, as decoding does.
func quantity(c randfill.Continue) *resource.Quantity {
	q := &resource.Quantity{}
	c.Fill(q)
	return q
}

// valueTarget generates a target of one of two types.
func valueTarget(c randfill.Continue) autoscalingv2.MetricTarget {
	if c.Bool() {
		return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: quantity(c)}
	}
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: quantity(c)}
}

// resourceTarget generates the target of a resource.
func resourceTarget(c randfill.Continue) autoscalingv2.MetricTarget {
	if c.Bool() {
		n := c.Int31()
		return autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &n}
	}
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: quantity(c)}
}

// resourceName generates the name of a resource.
func resourceName(c randfill.Continue) corev1.ResourceName {
	if c.Bool() {
		return corev1.ResourceCPU
	}
	return corev1.ResourceMemory
}

// fillMetric generates a metric of one type.
func fillMetric(metricSpec *autoscalingv2.MetricSpec, c randfill.Continue) {
	var id autoscalingv2.MetricIdentifier
	c.Fill(&id)
	switch c.Intn(5) {
	case 0:
		metricSpec.Type, metricSpec.Object = autoscalingv2.ObjectMetricSourceType, &autoscalingv2.ObjectMetricSource{Metric: id, Target: valueTarget(c)}
		c.Fill(&metricSpec.Object.DescribedObject)
	case 1:
		metricSpec.Type, metricSpec.Pods = autoscalingv2.PodsMetricSourceType, &autoscalingv2.PodsMetricSource{Metric: id,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: quantity(c)}}
	case 2:
		metricSpec.Type, metricSpec.Resource = autoscalingv2.ResourceMetricSourceType, &autoscalingv2.ResourceMetricSource{
			Name:   resourceName(c),
			Target: resourceTarget(c),
		}
	case 3:
		metricSpec.Type = autoscalingv2.ContainerResourceMetricSourceType
		metricSpec.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name:      resourceName(c),
			Container: c.String(9),
			Target:    resourceTarget(c),
		}
	default:
		metricSpec.Type, metricSpec.External = autoscalingv2.ExternalMetricSourceType, &autoscalingv2.ExternalMetricSource{Metric: id, Target: valueTarget(c)}
	}
}

// fillStatus generates the status of a metric of one type.
func fillStatus(metricStatus *autoscalingv2.MetricStatus, c randfill.Continue) {
	var id autoscalingv2.MetricIdentifier
	c.Fill(&id)
	n := c.Int31()
	used := autoscalingv2.MetricValueStatus{AverageUtilization: &n, AverageValue: quantity(c)}
	switch c.Intn(5) {
	case 0:
		metricStatus.Type = autoscalingv2.ObjectMetricSourceType
		metricStatus.Object = &autoscalingv2.ObjectMetricStatus{
			Metric:  id,
			Current: autoscalingv2.MetricValueStatus{Value: quantity(c), AverageValue: quantity(c)},
		}
		c.Fill(&metricStatus.Object.DescribedObject)
	case 1:
		metricStatus.Type = autoscalingv2.PodsMetricSourceType
		metricStatus.Pods = &autoscalingv2.PodsMetricStatus{Metric: id, Current: autoscalingv2.MetricValueStatus{AverageValue: quantity(c)}}
	case 2:
		metricStatus.Type, metricStatus.Resource = autoscalingv2.ResourceMetricSourceType, &autoscalingv2.ResourceMetricStatus{
			Name:    resourceName(c),
			Current: used,
		}
	case 3:
		metricStatus.Type = autoscalingv2.ContainerResourceMetricSourceType
		metricStatus.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
			Name:      resourceName(c),
			Container: c.String(9),
			Current:   used,
		}
	default:
		metricStatus.Type = autoscalingv2.ExternalMetricSourceType
		metricStatus.External = &autoscalingv2.ExternalMetricStatus{Metric: id, Current: autoscalingv2.MetricValueStatus{Value: quantity(c)}}
	}
}

// TestV1ClientKeepsV2Fields checks that a client that reads and writes v1 keeps all fields of v2,
// except for a second CPU utilization.
func TestV1ClientKeepsV2Fields(t *testing.T) {
	metrics := map[autoscalingv2.MetricSourceType]bool{}
	for seed := int64(0); seed < 400; seed++ {
		original := &autoscalingv2.HorizontalPodAutoscaler{}
		filler(seed).Fill(original)
		original.TypeMeta = metav1.TypeMeta{}
		if len(original.Spec.Metrics) == 0 {
			continue // defaulting sets it
		}
		original.Spec.MinReplicas = new(int32)
		served(t, "v2").Default(original)
		for _, m := range original.Spec.Metrics {
			metrics[m.Type] = true
		}
		before := original.DeepCopy()
		out := toV2(t, encodeAndDecode(t, toV1(t, original)))
		if !equality.Semantic.DeepEqual(before, original) {
			t.Fatalf("seed %d: the conversion modified its source", seed)
		}
		if want := withUtilizationLast(original); !equality.Semantic.DeepEqual(out, want) {
			t.Fatalf("seed %d: got\n%[3]s\nwant\n%[2]s", seed, text(t, want), text(t, out))
		}
	}
	if len(metrics) != 5 {
		t.Errorf("got metrics %v, want 5", metrics)
	}
}

// encodeAndDecode encodes an object and decodes it, like a client that writes what it read.
func encodeAndDecode(t testing.TB, autoscaler *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv1.HorizontalPodAutoscaler {
	t.Helper()
	out := &autoscalingv1.HorizontalPodAutoscaler{}
	if err := json.Unmarshal([]byte(text(t, autoscaler)), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// text returns an object as JSON.
func text(t testing.TB, o any) string {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// withUtilizationLast moves the first CPU utilization to the end, which is its position after a
// conversion, and removes the others.
func withUtilizationLast(autoscaler *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	out := autoscaler.DeepCopy()
	percent := func(m autoscalingv2.MetricSpec) bool {
		return m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
	}
	if first := slices.IndexFunc(out.Spec.Metrics, percent); first >= 0 {
		m := out.Spec.Metrics[first]
		out.Spec.Metrics = append(slices.DeleteFunc(out.Spec.Metrics, percent), m)
	}
	return out
}

// TestV2ConversionKeepsV1Object checks that a v1 object without annotations of the conversion does
// not change.
func TestV2ConversionKeepsV1Object(t *testing.T) {
	for seed := int64(0); seed < 200; seed++ {
		original := &autoscalingv1.HorizontalPodAutoscaler{}
		filler(seed).Fill(original)
		original.TypeMeta = metav1.TypeMeta{}
		if original.Spec.TargetCPUUtilizationPercentage == nil {
			original.Spec.TargetCPUUtilizationPercentage = new(int32)
		}
		original.Status.CurrentCPUUtilizationPercentage = nil // adds an annotation: see TestV2StatusBecomesAnnotationsOfV1
		if out := toV1(t, toV2(t, original)); !equality.Semantic.DeepEqual(out, original) {
			t.Fatalf("seed %d: got\n%[3]s\nwant\n%[2]s", seed, text(t, original), text(t, out))
		}
	}
}

// TestV2FieldsBecomeAnnotationsOfV1 compares recorded objects in both versions.
func TestV2FieldsBecomeAnnotationsOfV1(t *testing.T) {
	tests := []struct {
		name, v2, v1 string
		annotations  map[string]string
	}{
		{
			name: "a percentage becomes a field",
			v2:   `{maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 55}}}]}`,
			v1:   `{maxReplicas: 3, targetCPUUtilizationPercentage: 55}`,
		},
		{
			name: "other metrics become an annotation",
			v2: `{maxReplicas: 3, minReplicas: 2, scaleTargetRef: {kind: A, name: b, apiVersion: c/v1}, metrics: [
				{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1Gi}}},
				{type: Object, object: {metric: {name: m}, describedObject: {kind: K, name: web}, target: {type: AverageValue, averageValue: "5"}}},
				{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 55}}}]}`,
			v1: `{maxReplicas: 3, minReplicas: 2, scaleTargetRef: {kind: A, name: b, apiVersion: c/v1}, targetCPUUtilizationPercentage: 55}`,
			annotations: map[string]string{"metrics": `[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}},` +
				`{"type":"Object","object":{"target":{"kind":"K","name":"web"},"metricName":"m","targetValue":"0","averageValue":"5"}}]`},
		},
		{
			name: "the behavior becomes an annotation with Go field names",
			v2: `{maxReplicas: 3, behavior: {scaleUp: {stabilizationWindowSeconds: 0, selectPolicy: Max, policies: [{type: Pods, value: 1, periodSeconds: 15}]}, scaleDown: {stabilizationWindowSeconds: 60, selectPolicy: Min, policies: [{type: Pods, value: 4, periodSeconds: 15}]}},
				metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 55}}}]}`,
			v1: `{maxReplicas: 3, targetCPUUtilizationPercentage: 55}`,
			annotations: map[string]string{"behavior": `{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max",` +
				`"Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":{"StabilizationWindowSeconds":60,"SelectPolicy":"Min",` +
				`"Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null}}`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stored := &autoscalingv2.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Name: "h", Annotations: map[string]string{"mine": "stays"}},
			}
			parse(t, tt.v2, &stored.Spec)
			var want autoscalingv1.HorizontalPodAutoscalerSpec
			parse(t, tt.v1, &want)
			got := toV1(t, stored)
			if !equality.Semantic.DeepEqual(got.Spec, want) {
				t.Errorf("v1 is\n%s, want\n%s", text(t, got.Spec), text(t, want))
			}
			annotations := map[string]string{"mine": "stays"}
			for k, v := range tt.annotations {
				annotations[prefix+k] = v
			}
			if !maps.Equal(got.Annotations, annotations) {
				t.Errorf("annotations are\n%v, want\n%v", got.Annotations, annotations)
			}
			if back := toV2(t, got); !equality.Semantic.DeepEqual(back, stored) {
				t.Errorf("back in v2: got\n%s\nwant\n%s", text(t, back), text(t, stored))
			}
		})
	}
}

// parse decodes YAML.
func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "\t", " ")), into); err != nil {
		t.Fatal(err)
	}
}

// TestV1WithoutMetricTargets80PercentOfCPU checks the metric of a v1 object with neither a field nor a
// valid annotation for it.
func TestV1WithoutMetricTargets80PercentOfCPU(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"none":    nil,
		"invalid": {prefix + "metrics": "{", prefix + "behavior": "[", prefix + "current-metrics": "?", prefix + "conditions": "1"},
		"empty":   {prefix + "metrics": "null", prefix + "behavior": "{}", prefix + "current-metrics": "[]", prefix + "conditions": "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := toV2(t, &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}})
			var want []autoscalingv2.MetricSpec
			parse(t, `[{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]`, &want)
			if !equality.Semantic.DeepEqual(got.Spec.Metrics, want) || got.Spec.Behavior != nil || len(got.Annotations) != 0 ||
				len(got.Status.CurrentMetrics) != 0 {
				t.Errorf("got v2\n%s\nwant metrics %v and nothing else of the annotations", text(t, got), want)
			}
		})
	}
}

// TestDefaultSetsAnnotationsOfConversions checks that an object that a client sends gets the
// annotations with which it is served later.
func TestDefaultSetsAnnotationsOfConversions(t *testing.T) {
	percent := int32(44)
	autoscaler := &autoscalingv1.HorizontalPodAutoscaler{
		TypeMeta: metav1.TypeMeta{Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			"mine":                "stays",
			prefix + "behavior":   "broken",
			prefix + "conditions": "[]",
			prefix + "metrics":    `[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1000m"}}]`,
		}},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{CurrentCPUUtilizationPercentage: &percent},
	}
	served(t, "v1").Default(autoscaler)
	want := map[string]string{
		"mine":                     "stays",
		prefix + "metrics":         `[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1"}}]`,
		prefix + "current-metrics": `[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":44,"currentAverageValue":"0"}}]`,
	}
	if !maps.Equal(autoscaler.Annotations, want) {
		t.Errorf("Default: got annotations %v, want %v", autoscaler.Annotations, want)
	}
	if autoscaler.Kind == "" || autoscaler.Spec.TargetCPUUtilizationPercentage != nil || *autoscaler.Spec.MinReplicas != 1 {
		t.Errorf("Default: got %s, want a kind, 1 replica, no CPU target", text(t, autoscaler))
	}
}

// TestV2StatusBecomesAnnotationsOfV1 checks the conversion of the status to v1, and of the only status
// field of v1 to v2.
func TestV2StatusBecomesAnnotationsOfV1(t *testing.T) {
	stored := &autoscalingv2.HorizontalPodAutoscaler{}
	parse(t, `{currentReplicas: 2, desiredReplicas: 3, observedGeneration: 4,
		currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 33, averageValue: 12m}}}],
		conditions: [{type: AbleToScale, status: "True", reason: R, lastTransitionTime: null}]}`, &stored.Status)
	got := toV1(t, stored)
	if n := got.Status.CurrentCPUUtilizationPercentage; n == nil || *n != 33 {
		t.Errorf("got status %s, want a utilization of 33", text(t, got.Status))
	}
	want := map[string]string{
		prefix + "current-metrics": `[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":33,"currentAverageValue":"12m"}}]`,
		prefix + "conditions":      `[{"type":"AbleToScale","status":"True","lastTransitionTime":null,"reason":"R"}]`,
	}
	if !maps.Equal(got.Annotations, want) {
		t.Errorf("annotations are\n%v, want\n%v", got.Annotations, want)
	}

	// The field alone is converted too.
	percent := int32(44)
	back := toV2(
		t,
		&autoscalingv1.HorizontalPodAutoscaler{
			Status: autoscalingv1.HorizontalPodAutoscalerStatus{CurrentCPUUtilizationPercentage: &percent},
		},
	)
	if m := back.Status.CurrentMetrics; len(m) != 1 || *m[0].Resource.Current.AverageUtilization != 44 {
		t.Errorf("got status %s, want one metric with a utilization of 44", text(t, back.Status))
	}
}

// FuzzAnnotations checks that any annotations can be converted, and the result is stable.
func FuzzAnnotations(f *testing.F) {
	f.Add(`[{"type":"Object","object":{"metricName":"m"}}]`, `{"ScaleUp":{}}`, `[{"type":"Pods","pods":{}}]`, `[{"type":"x"}]`)
	f.Add(`[{}]`, `{"scaleup":{"Policies":[{}]}}`, `[{"external":{}}]`, `null`)
	f.Add(
		`[{"type":"External","external":{"targetValue":"1"}}]`,
		``,
		`[{"containerResource":{"currentAverageValue":"1e99999"}}]`,
		`{`,
	)
	f.Fuzz(func(t *testing.T, metrics, behavior, current, conditions string) {
		autoscaler := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			prefix + "metrics": metrics, prefix + "behavior": behavior, prefix + "current-metrics": current,
			prefix + "conditions": conditions,
		}}}
		once := toV1(t, toV2(t, autoscaler))
		for _, k := range autoscaling.Kinds(registry.Settings{}) {
			if k.Version == "v1" {
				for _, c := range k.Presentation.Columns {
					c.Cell(once)
				}
			}
		}
		if twice := toV1(t, toV2(t, once)); text(t, twice) != text(t, once) {
			t.Errorf("got\n%[2]s\nwant\n%[1]s", text(t, once), text(t, twice))
		}
	})
}
