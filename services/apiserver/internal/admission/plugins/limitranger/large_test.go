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

// manyResources returns n resources whose names have a prefix and at least a length.
func manyResources(prefix string, n, nameLength int) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := range n {
		k := fmt.Sprintf("%s/x%d", prefix, i)
		resources[corev1.ResourceName(k+strings.Repeat("x", max(0, nameLength-len(k))))] = resource.MustParse("1")
	}
	return resources
}

// charging returns the context of a request, and the largest cost that it is charged. isPermitted is
// the response of the limiter for large requests.
func charging(t *testing.T, isPermitted bool) (ctx context.Context, maxCost *int) {
	maxCost = new(int)
	ctx = requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "create"})
	request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(cost int) bool {
		*maxCost = max(*maxCost, cost)
		return isPermitted
	}}
	return ctx, maxCost
}

// TestLargeDefaultsAreCharged checks that the size of defaults and limits is charged before they
// are applied.
func TestLargeDefaultsAreCharged(t *testing.T) {
	defaults := func(lists ...corev1.ResourceList) (all ranges) {
		for _, l := range lists {
			all = append(all, limitRange(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.Default, i.DefaultRequest = l, l })...)
		}
		return all
	}
	few := resourceList("cpu", "1", "memory", "1Gi")
	bounds := limitRange(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.Max = manyResources("a.b", 400, 0) })
	for name, test := range map[string]struct {
		ranges     ranges
		containers int
		isLarge    bool   // the cost is that of a large request
		wantErr    string // part of the error of a permitted request
		wantCode   int32
	}{
		"few resources, many containers": {ranges: defaults(few), containers: 20},
		"some resources":                 {ranges: defaults(manyResources("a.b", 20, 0), few), containers: 10},
		"many resources":                 {ranges: defaults(manyResources("a.b", 500, 0)), containers: 10, isLarge: true},
		"long names":                     {ranges: defaults(manyResources("a.b", 20, 300)), containers: 20, isLarge: true},
		"limits without defaults":        {ranges: bounds, containers: 10, isLarge: true},
		"annotation too long": {
			ranges: defaults(manyResources("a.b", 5000, 0)), containers: 100, isLarge: true,
			wantErr: `Pod "p" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes`, wantCode: 422,
		},
		"two ranges": {ranges: defaults(manyResources("a.b", 1000, 300), few), containers: 1, isLarge: true},
		"all ranges together too large": {
			ranges:     defaults(manyResources("a.b", 2000, 300), manyResources("a.c", 2000, 300), manyResources("a.d", 2000, 300), few),
			containers: 1,
			isLarge:    true,
			wantErr:    "limit ranges add more to the pod than can be stored", wantCode: 413,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, isPermitted := range []bool{true, false} {
				p := pod(nil, nil)
				p.Spec.Containers = slices.Repeat(p.Spec.Containers, test.containers)
				ctx, maxCost := charging(t, isPermitted)
				plugin, req := &limitranger.Plugin{Ranges: test.ranges}, podRequest(admission.Create, "", p, nil)
				req.Kind.Kind = "Pod"
				err := plugin.Admit(ctx, req)
				// Limits without defaults are charged by Validate. Admit has throttled the other large
				// requests. A small one is valid in any case.
				isBounds := test.ranges[0] == bounds[0]
				if err == nil && (test.isLarge == isBounds || isPermitted) {
					if err = plugin.Validate(ctx, req); isBounds && apierrors.IsForbidden(err) {
						err = nil // the pod specifies no limit
					}
				}
				status, _ := err.(apierrors.APIStatus)
				switch {
				case test.isLarge != (*maxCost >= request.LargeBody):
					t.Errorf("permitted %t: got cost %d, want %d or more: %t", isPermitted, *maxCost, request.LargeBody, test.isLarge)
				case test.isLarge && !isPermitted:
					if !apierrors.IsTooManyRequests(err) {
						t.Errorf("not permitted: got error %v, want TooManyRequests", err)
					}
				case test.wantErr == "" && err != nil:
					t.Errorf("permitted %t: got error %v, want none", isPermitted, err)
				case test.wantErr != "" && (status == nil || status.Status().Code != test.wantCode || !strings.Contains(err.Error(), test.wantErr)):
					t.Errorf("permitted %t: got error %v, want code %d and a text that contains %q", isPermitted, err, test.wantCode, test.wantErr)
				}
				if size := p.Size(); test.wantErr != "" && size > 4<<20 || test.isLarge && !isPermitted && size > 3<<10 {
					t.Errorf("got a pod of %d bytes, want at most 4 MiB if rejected, and an unchanged one if not admitted", size)
				}
			}
		})
	}
}
