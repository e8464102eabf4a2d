package quota

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// serviceEvaluator counts services, their node ports and load balancers.
func serviceEvaluator() *Evaluator {
	count := countName(schema.GroupResource{Resource: "services"})
	return &Evaluator{
		MatchesResource: func(name corev1.ResourceName) bool {
			switch name {
			case count, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
				return true
			}
			return false
		},
		Usage: func(obj runtime.Object) (Amounts, error) {
			service, ok := obj.(*corev1.Service)
			if !ok {
				return nil, fmt.Errorf("got %T, want a Service", obj)
			}
			used := Amounts{count: OneQuantity(), corev1.ResourceServices: OneQuantity()}
			if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
				used[corev1.ResourceServicesLoadBalancers] = OneQuantity()
			}
			used[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(nodePorts(service), resource.DecimalSI)
			return used, nil
		},
	}
}

// nodePorts returns the number of node ports that a service has or will get.
func nodePorts(service *corev1.Service) (count int64) {
	allocate := service.Spec.AllocateLoadBalancerNodePorts
	switch {
	case service.Spec.Type == corev1.ServiceTypeNodePort,
		service.Spec.Type == corev1.ServiceTypeLoadBalancer && (allocate == nil || *allocate):
		return int64(len(service.Spec.Ports))
	case service.Spec.Type == corev1.ServiceTypeLoadBalancer:
		for _, p := range service.Spec.Ports {
			if p.NodePort != 0 {
				count++
			}
		}
	}
	return count
}
