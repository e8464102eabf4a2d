package limitranger_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/limitranger"
	"binnacle/services/apiserver/internal/registry"
)

// ranges are the limit ranges of every namespace.
type ranges []*corev1.LimitRange

func (r ranges) Each(_ context.Context, _ string, visit func(*corev1.LimitRange) error) error {
	for _, lr := range r {
		if err := visit(lr); err != nil {
			return err
		}
	}
	return nil
}

// resourceList returns amounts. pairs holds names, each followed by its amount.
func resourceList(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

// pod returns a pod with one container.
func pod(requests, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}},
	}}
}

// limitRange returns a limit range with one changed item.
func limitRange(t corev1.LimitType, change func(*corev1.LimitRangeItem)) ranges {
	i := corev1.LimitRangeItem{Type: t}
	change(&i)
	return ranges{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{i}}}}
}

// podRequest returns a request for the pod p, or for one of its subresources.
func podRequest(op admission.Operation, subresource string, p, old *corev1.Pod) *admission.Request {
	req := &admission.Request{
		Operation: op, Resource: &registry.Kind{Names: registry.Names{Version: "v1", Resource: "pods", Kind: "Pod"}},
		Namespace: "ns", Name: "p", Subresource: subresource, Object: p,
	}
	if old != nil {
		req.OldObject = old
	}
	return req
}

// TestPodsBeyondLimitsAreRejected checks that a pod beyond the limits of a limit range is rejected.
func TestPodsBeyondLimitsAreRejected(t *testing.T) {
	minimum := limitRange(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.Min = resourceList("cpu", "50m") })
	maximum := limitRange(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.Max = resourceList("cpu", "1") })
	ratio := limitRange(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = resourceList("cpu", "1.5") })
	whole := limitRange(corev1.LimitTypePod, func(i *corev1.LimitRangeItem) { i.Max = resourceList("cpu", "1") })
	huge := limitRange(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.Max = resourceList("memory", "8Ei") })
	for name, test := range map[string]struct {
		ranges ranges
		pod    *corev1.Pod
		want   string // after "pods "p" is forbidden: "
	}{
		"within the limits":         {ranges: minimum, pod: pod(resourceList("cpu", "50m"), resourceList("cpu", "60m")), want: ""},
		"no request":                {ranges: minimum, pod: pod(nil, nil), want: "minimum cpu usage per Container is 50m.  No request is specified"},
		"request below the minimum": {ranges: minimum, pod: pod(resourceList("cpu", "49m"), nil), want: "minimum cpu usage per Container is 50m, but request is 49m"},
		"limit below the minimum": {
			ranges: minimum, pod: pod(resourceList("cpu", "50m"), resourceList("cpu", "40m")),
			want: "minimum cpu usage per Container is 50m, but limit is 40m",
		},
		"no limit": {
			ranges: maximum, pod: pod(resourceList("cpu", "1m"), nil),
			want: "maximum cpu usage per Container is 1.  No limit is specified",
		},
		"limit above the maximum": {ranges: maximum, pod: pod(nil, resourceList("cpu", "1001m")), want: "maximum cpu usage per Container is 1, but limit is 1001m"},
		"request above the maximum": {
			ranges: maximum, pod: pod(resourceList("cpu", "2"), resourceList("cpu", "1")),
			want: "maximum cpu usage per Container is 1, but request is 2",
		},
		"ratio within the maximum": {ranges: ratio, pod: pod(resourceList("cpu", "2"), resourceList("cpu", "3")), want: ""},
		"ratio above the maximum": {
			ranges: ratio, pod: pod(resourceList("cpu", "1"), resourceList("cpu", "2")),
			want: "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000",
		},
		"ratio, request is 0": {
			ranges: ratio, pod: pod(resourceList("cpu", "0"), resourceList("cpu", "2")),
			want: "cpu max limit to request ratio per Container is 1500m, but no request is specified or request is 0",
		},
		"ratio, no limit": {
			ranges: ratio, pod: pod(resourceList("cpu", "1"), nil),
			want: "cpu max limit to request ratio per Container is 1500m, but no limit is specified or limit is 0",
		},
		"maximum of the whole pod": {ranges: whole, pod: pod(nil, resourceList("cpu", "2")), want: "maximum cpu usage per Pod is 1, but limit is 2"},
		"very large":               {ranges: huge, pod: pod(nil, resourceList("memory", "7Ei")), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := &limitranger.Plugin{Ranges: test.ranges}
			err := plugin.Validate(t.Context(), podRequest(admission.Create, "", test.pod, nil))
			got := ""
			if err != nil {
				got = err.Error()
			}
			want := test.want
			if want != "" {
				want = `pods "p" is forbidden: ` + want
			}
			if got != want {
				t.Errorf("got error %q, want %q (empty: none)", got, want)
			}
		})
	}
}

// TestLimitsApplyOnlyToCreateAndResize checks that limits apply to the creation and the resizing of
// pods only.
func TestLimitsApplyOnlyToCreateAndResize(t *testing.T) {
	plugin := &limitranger.Plugin{
		Ranges: limitRange(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.Max = resourceList("cpu", "1") }),
	}
	now := metav1.Now()
	terminating := pod(nil, nil)
	terminating.DeletionTimestamp = &now
	for name, test := range map[string]struct {
		request *admission.Request
		wantErr bool
	}{
		"create":                      {request: podRequest(admission.Create, "", pod(nil, nil), nil), wantErr: true},
		"update":                      {request: podRequest(admission.Update, "", pod(nil, nil), pod(nil, nil)), wantErr: false},
		"status":                      {request: podRequest(admission.Update, "status", pod(nil, nil), pod(nil, nil)), wantErr: false},
		"resize":                      {request: podRequest(admission.Update, "resize", pod(nil, nil), pod(nil, nil)), wantErr: true},
		"resize of a terminating pod": {request: podRequest(admission.Update, "resize", pod(nil, nil), terminating), wantErr: false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := plugin.Validate(t.Context(), test.request); (err != nil) != test.wantErr {
				t.Errorf("got error %v, want an error: %t", err, test.wantErr)
			}
		})
	}
}
