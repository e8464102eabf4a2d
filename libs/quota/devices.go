package quota

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func resourceClaims() schema.GroupResource {
	return schema.GroupResource{Group: resourcev1beta1.GroupName, Resource: "resourceclaims"}
}

// deviceRequest is a request of a resource claim for devices of a class. mode is its allocation
// mode, whose values are the same in all versions of the API.
type deviceRequest struct {
	class, mode string
	count       int64
}

// maxDevices returns the largest number of devices that the request can get. It is 0 for an unknown
// mode.
func (d deviceRequest) maxDevices() int64 {
	switch d.mode {
	case string(resourcev1beta1.DeviceAllocationModeExactCount):
		return d.count
	case string(resourcev1beta1.DeviceAllocationModeAll):
		return resourcev1beta1.AllocationResultsMaxSize
	}
	return 0
}

// deviceEvaluator counts device claims, and devices by class.
func deviceEvaluator() *Evaluator {
	count := countName(resourceClaims())
	return &Evaluator{
		MatchesResource: func(name corev1.ResourceName) bool {
			return name == count || strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass)
		},
		Usage: func(obj runtime.Object) (Amounts, error) {
			requests, err := requestsOfClaim(obj)
			if err != nil {
				return nil, err
			}
			used := Amounts{count: OneQuantity()}
			for _, alternatives := range requests {
				maxByClass := map[string]int64{}
				for _, d := range alternatives {
					maxByClass[d.class] = max(maxByClass[d.class], d.maxDevices())
				}
				for class, devices := range maxByClass {
					name := corev1.ResourceName(class + corev1.ResourceClaimsPerClass)
					quantity := used[name]
					quantity.Add(*resource.NewQuantity(devices, resource.DecimalSI))
					used[name] = quantity
				}
			}
			return used, nil
		},
	}
}

// requestsOfClaim returns the requests of a claim, each with its alternatives.
func requestsOfClaim(obj runtime.Object) (requests [][]deviceRequest, err error) {
	switch c := obj.(type) {
	case *resourcev1beta1.ResourceClaim:
		for _, r := range c.Spec.Devices.Requests {
			alternatives := []deviceRequest{{r.DeviceClassName, string(r.AllocationMode), r.Count}}
			if len(r.FirstAvailable) > 0 {
				alternatives = nil
			}
			for _, alternative := range r.FirstAvailable {
				alternatives = append(alternatives, deviceRequest{alternative.DeviceClassName, string(alternative.AllocationMode), alternative.Count})
			}
			requests = append(requests, alternatives)
		}
	case *resourcev1alpha3.ResourceClaim:
		for _, r := range c.Spec.Devices.Requests {
			alternatives := []deviceRequest{{r.DeviceClassName, string(r.AllocationMode), r.Count}}
			if len(r.FirstAvailable) > 0 {
				alternatives = nil
			}
			for _, alternative := range r.FirstAvailable {
				alternatives = append(alternatives, deviceRequest{alternative.DeviceClassName, string(alternative.AllocationMode), alternative.Count})
			}
			requests = append(requests, alternatives)
		}
	case *resourcev1beta2.ResourceClaim:
		for _, r := range c.Spec.Devices.Requests {
			var alternatives []deviceRequest
			if e := r.Exactly; e != nil {
				alternatives = append(alternatives, deviceRequest{e.DeviceClassName, string(e.AllocationMode), e.Count})
			}
			for _, alternative := range r.FirstAvailable {
				alternatives = append(alternatives, deviceRequest{alternative.DeviceClassName, string(alternative.AllocationMode), alternative.Count})
			}
			requests = append(requests, alternatives)
		}
	default:
		return nil, fmt.Errorf("got %T, want a ResourceClaim", obj)
	}
	return requests, nil
}
