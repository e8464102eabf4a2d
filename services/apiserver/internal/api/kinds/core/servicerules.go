package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

const (
	// maxAffinityTimeout is one day in seconds.
	maxAffinityTimeout = 24 * 60 * 60

	sourceRangesAnnotation   = "service.beta.kubernetes.io/load-balancer-source-ranges"
	topologyHintsAnnotation  = "service.kubernetes.io/topology-aware-hints"
	notForExternalNameDetail = "may not be set for ExternalName services"
	forLoadBalancersDetail   = "may only be used when `type` is 'LoadBalancer'"
)

// isHeadless reports whether a service has no virtual address.
func isHeadless(s *corev1.ServiceSpec) bool {
	return len(s.ClusterIPs) == 1 && s.ClusterIPs[0] == corev1.ClusterIPNone
}

// validateService validates a service, which may still lack allocated values. old is nil at creation.
// distributions holds the allowed values of trafficDistribution.
func validateService(fld validate.Field, service, old *corev1.Service, distributions []string) {
	hints, hasHints := service.Annotations[topologyHintsAnnotation]
	if mode, ok := service.Annotations[corev1.AnnotationTopologyMode]; ok && hasHints && mode != hints {
		fld.Child("metadata", "annotations").Key("", corev1.AnnotationTopologyMode).Invalid("", mode,
			"must match annotations["+topologyHintsAnnotation+"] when both are specified")
	}
	spec, specField := &service.Spec, fld.Child("spec")
	if len(spec.Ports) == 0 && !isHeadless(spec) && spec.Type != corev1.ServiceTypeExternalName {
		specField.Required("ports", "")
	}
	validateServiceType(specField, spec)
	names := validate.Set[string]{}
	validate.Each(specField, "ports", spec.Ports, func(fld validate.Field, p *corev1.ServicePort) {
		validateServicePort(fld, p, len(spec.Ports) > 1, names)
	})
	specField.CheckLabels("selector", spec.Selector)
	validate.RequiredOneOf(specField, "sessionAffinity", spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	validateSessionAffinity(specField, spec)
	fld.Add(ValidateClusterIPs(service)...)
	validate.Each(specField, "externalIPs", spec.ExternalIPs, func(fld validate.Field, ip *string) {
		if fld.CheckIP("", *ip) {
			fld.CheckNonSpecialIP("", *ip)
		}
	})
	validate.RequiredOneOf(specField, "type", spec.Type,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	validateUniquePorts(specField, spec)
	validateSourceRanges(fld, service, old)
	isLoadBalancer := spec.Type == corev1.ServiceTypeLoadBalancer
	specField.ForbidSet("allocateLoadBalancerNodePorts", spec.AllocateLoadBalancerNodePorts != nil && !isLoadBalancer, forLoadBalancersDetail)
	validateLoadBalancerClass(specField, spec)
	validateTrafficPolicies(specField, spec, distributions)
}

// validateServiceType validates the addresses and names that each type may have.
func validateServiceType(fld validate.Field, spec *corev1.ServiceSpec) {
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if isHeadless(spec) {
			fld.Index("clusterIPs", 0).Invalid("", spec.ClusterIPs[0], fmt.Sprintf("may not be set to 'None' for %s services", spec.Type))
		}
	case corev1.ServiceTypeExternalName:
		fld.ForbidSet("clusterIPs", len(spec.ClusterIPs) > 0, notForExternalNameDetail)
		fld.ForbidSet("ipFamilies", len(spec.IPFamilies) > 0, notForExternalNameDetail)
		fld.ForbidSet("ipFamilyPolicy", spec.IPFamilyPolicy != nil, notForExternalNameDetail)
		fld.CheckRequiredText("externalName", strings.TrimSuffix(spec.ExternalName, "."), validate.DNSSubdomain)
	}
}

// validateServicePort validates a port. names holds the names of the previous ports.
func validateServicePort(fld validate.Field, servicePort *corev1.ServicePort, requireName bool, names validate.Set[string]) {
	if servicePort.Name != "" {
		fld.CheckText("name", servicePort.Name, validate.DNSLabel)
		validate.Unique(fld, "name", servicePort.Name, names)
	} else {
		fld.RequireSet("name", !requireName)
	}
	fld.CheckPort("port", servicePort.Port)
	podspec.ValidateProtocol(fld, servicePort.Protocol)
	fld.CheckPortOrName("targetPort", servicePort.TargetPort)
	if servicePort.AppProtocol != nil {
		fld.CheckText("appProtocol", *servicePort.AppProtocol, validate.QualifiedName)
	}
}

// validateSessionAffinity requires a timeout for the affinity ClientIP.
func validateSessionAffinity(fld validate.Field, s *corev1.ServiceSpec) {
	config := s.SessionAffinityConfig
	if s.SessionAffinity != corev1.ServiceAffinityClientIP {
		fld.ForbidSet("sessionAffinityConfig", s.SessionAffinity == corev1.ServiceAffinityNone && config != nil,
			"must not be set when session affinity is None")
		return
	}
	const detail = "when session affinity type is ClientIP"
	switch {
	case config == nil:
		fld.Required("sessionAffinityConfig", detail)
	case config.ClientIP == nil:
		fld.Child("sessionAffinityConfig").Required("clientIP", detail)
	case config.ClientIP.TimeoutSeconds == nil:
		fld.Child("sessionAffinityConfig", "clientIP").Required("timeoutSeconds", detail)
	default:
		if n := *config.ClientIP.TimeoutSeconds; n <= 0 || n > maxAffinityTimeout {
			fld.Child("sessionAffinityConfig", "clientIP").Invalid("timeoutSeconds", n,
				fmt.Sprintf("must be greater than 0 and less than %d", maxAffinityTimeout))
		}
	}
}

// validateUniquePorts rejects duplicate ports of one protocol.
func validateUniquePorts(fld validate.Field, serviceSpec *corev1.ServiceSpec) {
	type portKey struct {
		protocol corev1.Protocol
		number   int32
	}
	if serviceSpec.Type == corev1.ServiceTypeClusterIP {
		validate.Each(fld, "ports", serviceSpec.Ports, func(fld validate.Field, p *corev1.ServicePort) {
			fld.ForbidSet("nodePort", p.NodePort != 0, "may not be used when `type` is 'ClusterIP'")
		})
	}
	nodePorts, ports := validate.Set[portKey]{}, validate.Set[portKey]{}
	validate.Each(fld, "ports", serviceSpec.Ports, func(fld validate.Field, p *corev1.ServicePort) {
		if p.NodePort != 0 && !nodePorts.Add(portKey{p.Protocol, p.NodePort}) {
			fld.Duplicate("nodePort", p.NodePort)
		}
	})
	validate.Each(fld, "ports", serviceSpec.Ports, func(fld validate.Field, p *corev1.ServicePort) {
		if !ports.Add(portKey{p.Protocol, p.Port}) {
			fld.Duplicate("", corev1.ServicePort{Protocol: p.Protocol, Port: p.Port})
		}
	})
}

// validateSourceRanges validates loadBalancerSourceRanges or, without it, the annotation that
// preceded the field. An unchanged annotation may be invalid, because writes of the status do not
// validate it. As in Kubernetes, errors begin the name of the field with an upper-case letter.
func validateSourceRanges(fld validate.Field, service, old *corev1.Service) {
	isLoadBalancer := service.Spec.Type == corev1.ServiceTypeLoadBalancer
	if len(service.Spec.LoadBalancerSourceRanges) > 0 {
		specField := fld.Child("spec")
		specField.ForbidSet("LoadBalancerSourceRanges", !isLoadBalancer, forLoadBalancersDetail)
		validate.Each(specField, "LoadBalancerSourceRanges", service.Spec.LoadBalancerSourceRanges, func(fld validate.Field, r *string) {
			fld.CheckCIDR("", strings.TrimSpace(*r))
		})
		return
	}
	text, ok := service.Annotations[sourceRangesAnnotation]
	if !ok {
		return
	}
	annotation := fld.Child("metadata", "annotations").Key("", sourceRangesAnnotation)
	annotation.ForbidSet("", !isLoadBalancer, forLoadBalancersDetail)
	if old != nil && old.Annotations[sourceRangesAnnotation] == text {
		return
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	for _, r := range strings.Split(text, ",") {
		annotation.CheckCIDR("", strings.TrimSpace(r))
	}
}

func validateLoadBalancerClass(fld validate.Field, spec *corev1.ServiceSpec) {
	if spec.LoadBalancerClass == nil {
		return
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		fld.Forbidden("loadBalancerClass", forLoadBalancersDetail)
		return
	}
	fld.CheckText("loadBalancerClass", *spec.LoadBalancerClass, validate.QualifiedName)
}

// validateTrafficPolicies validates traffic policies. A missing health check port is allocated
// later.
func validateTrafficPolicies(fld validate.Field, serviceSpec *corev1.ServiceSpec, distributions []string) {
	if isReachableFromOutside(serviceSpec) {
		validate.RequiredOneOf(fld, "externalTrafficPolicy", serviceSpec.ExternalTrafficPolicy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	} else if serviceSpec.ExternalTrafficPolicy != "" {
		fld.Invalid("externalTrafficPolicy", serviceSpec.ExternalTrafficPolicy, "may only be set for externally-accessible services")
	}
	switch port := serviceSpec.HealthCheckNodePort; {
	case port == 0:
	case hasHealthCheckPort(serviceSpec):
		fld.CheckPort("healthCheckNodePort", port)
	default:
		fld.Invalid("healthCheckNodePort", port,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	}
	fld.RequireSet("internalTrafficPolicy",
		serviceSpec.InternalTrafficPolicy != nil || !hasNodePort(serviceSpec) && serviceSpec.Type != corev1.ServiceTypeClusterIP)
	validate.OptionalOneOf(fld, "internalTrafficPolicy", serviceSpec.InternalTrafficPolicy,
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	validate.OptionalOneOf(fld, "trafficDistribution", serviceSpec.TrafficDistribution, distributions...)
}

// validateServiceChanges rejects changes of allocated values, unless the new type does not use
// them.
func validateServiceChanges(fld validate.Field, serviceSpec, old *corev1.ServiceSpec) {
	if hasClusterIP(serviceSpec) && hasClusterIP(old) {
		if !isHeadless(serviceSpec) || !isHeadless(old) {
			validateAddressChanges(fld, serviceSpec, old)
		}
		if !isHeadless(serviceSpec) && !isHeadless(old) {
			validateFamilyChanges(fld, serviceSpec, old)
		}
	}
	isLoadBalancer := serviceSpec.Type == corev1.ServiceTypeLoadBalancer && old.Type == corev1.ServiceTypeLoadBalancer
	if isLoadBalancer && !validate.SemanticEqual(serviceSpec.LoadBalancerClass, old.LoadBalancerClass) {
		fld.Invalid("loadBalancerClass", serviceSpec.LoadBalancerClass, "may not change once set")
	}
	// Kubernetes reports the rules of the class twice for an update.
	validateLoadBalancerClass(fld, serviceSpec)
	if hasHealthCheckPort(serviceSpec) && hasHealthCheckPort(old) && serviceSpec.HealthCheckNodePort != old.HealthCheckNodePort {
		fld.Forbidden("healthCheckNodePort", "field is immutable")
	}
}

const setOnceDetail = "may not change once set"

// validateAddressChanges allows adding and removing a second address.
func validateAddressChanges(fld validate.Field, serviceSpec, old *corev1.ServiceSpec) {
	now, before := serviceSpec.ClusterIPs, old.ClusterIPs
	first := fld.Index("clusterIPs", 0)
	if len(now) == len(before) {
		for i := range before {
			if now[i] != before[i] {
				fld.Index("clusterIPs", i).Invalid("", now, setOnceDetail)
			}
		}
		return
	}
	if len(now) == 0 {
		first.Invalid("", now, "primary clusterIP can not be unset")
	} else if len(before) > 0 && now[0] != before[0] {
		first.Invalid("", now, setOnceDetail)
	}
	if len(before) > len(now) && len(now) == 1 && !isSingleStack(serviceSpec) {
		fld.Invalid("ipFamilyPolicy", serviceSpec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary clusterIP")
	}
}

func isSingleStack(s *corev1.ServiceSpec) bool {
	return s.IPFamilyPolicy != nil && *s.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
}

// validateFamilyChanges allows adding and removing a second family.
func validateFamilyChanges(fld validate.Field, serviceSpec, old *corev1.ServiceSpec) {
	now, before := serviceSpec.IPFamilies, old.IPFamilies
	first := fld.Index("ipFamilies", 0)
	if len(now) == len(before) {
		for i := range before {
			if now[i] != before[i] {
				first.Invalid("", now, setOnceDetail)
			}
		}
		return
	}
	if len(now) < len(before) && len(serviceSpec.ClusterIPs) == 0 {
		first.Invalid("", now, "primary ipFamily can not be unset")
	}
	if len(now) > 0 && len(before) > 0 && now[0] != before[0] {
		first.Invalid("", serviceSpec.ClusterIPs, setOnceDetail)
	}
	if len(now) < len(before) && len(now) == 1 && !isSingleStack(serviceSpec) {
		fld.Invalid("ipFamilyPolicy", serviceSpec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary ipFamily")
	}
}

// validateLoadBalancer validates the ingress points of a load balancer. Services of other types
// have none, unless anyType is set. needMode requires an ipMode for each ip.
func validateLoadBalancer(fld validate.Field, s *corev1.Service, anyType, needMode bool) {
	points := s.Status.LoadBalancer.Ingress
	if !anyType && s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(points) > 0 {
		fld.Forbidden("ingress", "may only be used when `spec.type` is 'LoadBalancer'")
		return
	}
	validate.Each(fld, "ingress", points, func(fld validate.Field, ingress *corev1.LoadBalancerIngress) {
		if ingress.IP != "" {
			fld.CheckIP("ip", ingress.IP)
		}
		switch {
		case ingress.IPMode == nil:
			if ingress.IP != "" && needMode {
				fld.Required("ipMode", "must be specified when `ip` is set")
			}
		case ingress.IP == "":
			fld.Forbidden("ipMode", "may not be specified when `ip` is not set")
		default:
			validate.OneOf(fld, "ipMode", *ingress.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)
		}
		if ingress.Hostname != "" {
			fld.CheckText("hostname", ingress.Hostname, validate.DNSSubdomain)
			if netutils.ParseIPSloppy(ingress.Hostname) != nil {
				fld.Invalid("hostname", ingress.Hostname, "must be a DNS name, not an IP address")
			}
		}
	})
}

// serviceWarnings returns warnings about deprecated annotations, non-canonical addresses and ignored
// fields.
func serviceWarnings(service *corev1.Service) (out []string) {
	if _, ok := service.Annotations[topologyHintsAnnotation]; ok {
		out = append(out,
			fmt.Sprintf("annotation %s is deprecated, please use %s instead", topologyHintsAnnotation, corev1.AnnotationTopologyMode))
	}
	spec, path := &service.Spec, field.NewPath("spec")
	warnIf := func(isIgnored bool, text string) {
		if isIgnored {
			out = append(out, text)
		}
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range spec.ClusterIPs {
			out = append(out, validate.IPWarnings(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	for i, ip := range spec.ExternalIPs {
		out = append(out, validate.IPWarnings(path.Child("externalIPs").Index(i), ip)...)
	}
	if spec.LoadBalancerIP != "" {
		out = append(out, validate.IPWarnings(path.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	}
	for i, r := range spec.LoadBalancerSourceRanges {
		out = append(out, validate.CIDRWarnings(path.Child("loadBalancerSourceRanges").Index(i), r)...)
	}
	isExternal := spec.Type == corev1.ServiceTypeExternalName
	warnIf(isExternal && len(spec.ExternalIPs) > 0, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	warnIf(!isExternal && spec.ExternalName != "", `spec.externalName is ignored when spec.type is not "ExternalName"`)
	return out
}

// serviceStatusWarnings returns warnings for non-canonical load balancer addresses.
func serviceStatusWarnings(s *corev1.Service) (out []string) {
	path := field.NewPath("status", "loadBalancer", "ingress")
	for i, point := range s.Status.LoadBalancer.Ingress {
		if point.IP != "" {
			out = append(out, validate.IPWarnings(path.Index(i), point.IP)...)
		}
	}
	return out
}
