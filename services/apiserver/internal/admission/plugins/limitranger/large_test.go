package limitranger_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/limitranger"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// manyResources returns n resources with names of the given length.
func manyResources(prefix string, n, name int) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := range n {
		k := fmt.Sprintf("%s/x%d", prefix, i)
		l[corev1.ResourceName(k+strings.Repeat("x", max(0, name-len(k))))] = resource.MustParse("1")
	}
	return l
}

// charging returns the context of a request whose large work is permitted or not, and the largest
// cost it was charged.
func charging(t *testing.T, may bool) (ctx context.Context, most *int) {
	most = new(int)
	ctx = requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "create"})
	request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool { *most = max(*most, n); return may }}
	return ctx, most
}

// TestLargeDefaultsAreCharged checks that the size of defaults and limits is charged before they
// are applied.
func TestLargeDefaultsAreCharged(t *testing.T) {
	defaults := func(lists ...corev1.ResourceList) (all ranges) {
		for _, l := range lists {
			all = append(all, item(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.Default, i.DefaultRequest = l, l })...)
		}
		return all
	}
	few := list("cpu", "1", "memory", "1Gi")
	bounds := item(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.Max = manyResources("a.b", 400, 0) })
	for name, c := range map[string]struct {
		ranges     ranges
		containers int
		large      bool
		rejected   string // besides throttling
		code       int32
	}{
		"few":        {ranges: defaults(few), containers: 20},
		"some":       {ranges: defaults(manyResources("a.b", 20, 0), few), containers: 10},
		"many":       {ranges: defaults(manyResources("a.b", 500, 0)), containers: 10, large: true},
		"long names": {ranges: defaults(manyResources("a.b", 20, 300)), containers: 20, large: true},
		"bounds":     {ranges: bounds, containers: 10, large: true},
		"too many": {
			ranges: defaults(manyResources("a.b", 5000, 0)), containers: 100, large: true,
			rejected: `Pod "p" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes`, code: 422,
		},
		"several ranges": {ranges: defaults(manyResources("a.b", 1000, 300), few), containers: 1, large: true},
		"in all": {
			ranges:     defaults(manyResources("a.b", 2000, 300), manyResources("a.c", 2000, 300), manyResources("a.d", 2000, 300), few),
			containers: 1,
			large:      true,
			rejected:   "limit ranges add more to the pod than can be stored", code: 413,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, may := range []bool{true, false} {
				p := pod(nil, nil)
				p.Spec.Containers = slices.Repeat(p.Spec.Containers, c.containers)
				ctx, most := charging(t, may)
				plugin, r := &limitranger.Plugin{Ranges: c.ranges}, podRequest(admission.Create, "", p, nil)
				r.Kind.Kind = "Pod"
				err := plugin.Admit(ctx, r)
				if err == nil && (c.large == (name == "bounds") || may) {
					if err = plugin.Validate(ctx, r); name == "bounds" && apierrors.IsForbidden(err) {
						err = nil // no limit is specified
					}
				}
				status, _ := err.(apierrors.APIStatus)
				switch {
				case c.large != (*most >= request.LargeBody):
					t.Errorf("got cost %d, want that of a large request: %t", *most, c.large)
				case c.large && !may:
					if !apierrors.IsTooManyRequests(err) {
						t.Errorf("throttled: got %v, want an error of type TooManyRequests", err)
					}
				case c.rejected == "" && err != nil:
					t.Error(err)
				case c.rejected != "" && (status == nil || status.Status().Code != c.code || !strings.Contains(err.Error(), c.rejected)):
					t.Errorf("got %v", err)
				}
				if size := p.Size(); c.rejected != "" && size > 4<<20 || c.large && !may && size > 3<<10 {
					t.Errorf("got a pod of %d bytes, want at most 4 MiB if rejected, and an unchanged one if not admitted", size)
				}
			}
		})
	}
}
