package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	netutils "k8s.io/utils/net"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/registry/validate"
)

// services declares the namespaced kind Service.
func services(settings registry.Settings) *registry.Kind {
	allowStatusOfAnyType := settings.Enabled(features.AllowServiceLBStatusOnNonLB)
	ipMode := settings.Enabled(features.LoadBalancerIPMode)
	distributions := []string{corev1.ServiceTrafficDistributionPreferClose}
	if settings.Enabled(features.PreferSameTrafficDistribution) {
		distributions = append(distributions, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode)
	}
	return declare.Kind[corev1.Service, corev1.ServiceList](&registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "services", Kind: "Service",
			ShortNames: []string{"svc"}, Categories: []string{"all"}, Namespaced: true, ValidateName: meta.DNS1035Label,
		},
		Parts:          declare.SpecStatusAccessors(func(s *corev1.Service) (*corev1.ServiceSpec, *corev1.ServiceStatus) { return &s.Spec, &s.Status }),
		Stored:         registry.StorageForm{Prefix: "services/specs"},
		Default:        declare.Adapt(func(s *corev1.Service) { defaultService(s, ipMode) }),
		AfterDecode:    declare.Adapt(func(s *corev1.Service) { readService(s, settings.PrimaryFamily) }),
		DefaultedRules: serviceDefaultedRules,
		Create: registry.Create{
			Validate: declare.AdaptValidation(
				func(fld validate.Field, s *corev1.Service) { validateService(fld, s, nil, distributions) },
			),
			Warnings: declare.AdaptResult(serviceWarnings),
		},
		Update: registry.Update{
			Order:               registry.Order{registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			AllowCreateOnUpdate: true,
			Prepare:             declare.AdaptUpdate(dropOfOtherType),
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, s, old *corev1.Service) {
				validateServiceChanges(fld.Child("spec"), &s.Spec, &old.Spec)
				validateService(fld, s, old, distributions)
			}),
		},
		Delete: registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{
				{Label: "spec.clusterIP"},
				{Label: "spec.type"},
			},
			Columns: serviceColumns(),
		},
		Subresources: []registry.Subresource{
			{
				Name:          "proxy",
				Connect:       true,
				AllowSubpaths: true,
				Verbs:         proxyVerbs(),
				GVK:           coreKind("ServiceProxyOptions"),
				New:           declare.New[corev1.ServiceProxyOptions],
			},
			declare.WithWarnings(declare.ValidatedView("status", "Service", func(s, old *corev1.Service) {
				s.Spec = old.Spec
				if !ipMode && !usesIPMode(old) {
					dropIPModes(s)
				}
			},
				func(fld validate.Field, s, _ *corev1.Service) {
					validateLoadBalancer(fld.Child("status", "loadBalancer"), s, allowStatusOfAnyType, ipMode)
				}), serviceStatusWarnings),
		},
	})
}

// affinityTimeout is the default timeout of a session affinity in seconds.
const affinityTimeout = 3 * 60 * 60

// defaultService sets the fields that a client omitted. ipMode is the gate LoadBalancerIPMode.
func defaultService(service *corev1.Service, ipMode bool) {
	spec := &service.Spec
	declare.SetDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	defaultAffinity(spec)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		declare.SetDefault(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	isClusterIP := spec.Type == corev1.ServiceTypeClusterIP
	isLoadBalancer := spec.Type == corev1.ServiceTypeLoadBalancer
	usesNodePorts := isLoadBalancer || spec.Type == corev1.ServiceTypeNodePort
	if usesNodePorts || isClusterIP {
		declare.SetDefaultPtr(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if usesNodePorts || isClusterIP && len(spec.ExternalIPs) > 0 {
		declare.SetDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if !isLoadBalancer {
		return
	}
	declare.SetDefaultPtr(&spec.AllocateLoadBalancerNodePorts, true)
	if !ipMode {
		return
	}
	for i := range service.Status.LoadBalancer.Ingress {
		if point := &service.Status.LoadBalancer.Ingress[i]; point.IP != "" {
			declare.SetDefaultPtr(&point.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}

// readService sets fields that a service lacks if an older Kubernetes stored it. primary is the
// default IP family of services; empty means IPv4. It also drops the internal traffic policy of
// ExternalName services, which Kubernetes stores but never returns.
func readService(s *corev1.Service, primary corev1.IPFamily) {
	spec := &s.Spec
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		spec.InternalTrafficPolicy = nil
		return
	}
	if len(spec.IPFamilies) > 0 {
		return
	}
	policy := corev1.IPFamilyPolicySingleStack
	if spec.ClusterIP == corev1.ClusterIPNone {
		first, second := corev1.IPv4Protocol, corev1.IPv6Protocol
		if primary == corev1.IPv6Protocol {
			first, second = second, first
		}
		spec.IPFamilies = []corev1.IPFamily{first}
		if len(spec.Selector) == 0 {
			policy = corev1.IPFamilyPolicyRequireDualStack
			spec.IPFamilies = append(spec.IPFamilies, second)
		}
		spec.IPFamilyPolicy = &policy
		return
	}
	for _, ip := range spec.ClusterIPs {
		family := corev1.IPv4Protocol
		if netutils.IsIPv6String(ip) {
			family = corev1.IPv6Protocol
		}
		spec.IPFamilies = append(spec.IPFamilies, family)
	}
	if len(spec.IPFamilies) > 1 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	if len(spec.IPFamilies) > 0 {
		spec.IPFamilyPolicy = &policy
	}
}

// defaultAffinity sets affinity defaults, and clears the configuration of services without
// affinity.
func defaultAffinity(spec *corev1.ServiceSpec) {
	declare.SetDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		c := spec.SessionAffinityConfig
		if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			timeout := int32(affinityTimeout)
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
		}
	}
}

func serviceColumns() []registry.Column {
	spec := func(name string) string { return columns.Doc(corev1.ServiceSpec{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.Text("Type", spec("type"), func(s *corev1.Service) string { return string(s.Spec.Type) }),
		columns.Text("Cluster-IP", spec("clusterIP"), clusterIPText),
		columns.Text("External-IP", spec("externalIPs"), externalIPText),
		columns.Text("Port(s)", spec("ports"), portsText),
		columns.Age(),
		columns.WideText("Selector", spec("selector"), func(s *corev1.Service) string { return columns.Labels(s.Spec.Selector) }),
	}
}

// clusterIPText returns the first cluster IP.
func clusterIPText(service *corev1.Service) string {
	if len(service.Spec.ClusterIPs) > 0 {
		return service.Spec.ClusterIPs[0]
	}
	return columns.OrNone(service.Spec.ClusterIP)
}

// externalIPText returns the addresses or the name by which clients outside of the cluster reach a
// service.
func externalIPText(service *corev1.Service) string {
	external := strings.Join(service.Spec.ExternalIPs, ",")
	switch service.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return columns.OrNone(external)
	case corev1.ServiceTypeLoadBalancer:
		switch ingress := ingressText(service.Status.LoadBalancer.Ingress); {
		case external == "":
			return cmp.Or(ingress, "<pending>")
		case ingress == "":
			return external
		default:
			return ingress + "," + external
		}
	case corev1.ServiceTypeExternalName:
		return service.Spec.ExternalName
	default:
		return columns.Unknown
	}
}

// ingressText returns the address, or else the name, of each point, sorted.
func ingressText(points []corev1.LoadBalancerIngress) string {
	texts := map[string]bool{}
	for _, p := range points {
		if text := cmp.Or(p.IP, p.Hostname); text != "" {
			texts[text] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(texts)), ",")
}

// portsText returns each port as "port/protocol" or "port:nodePort/protocol".
func portsText(s *corev1.Service) string {
	texts := make([]string, len(s.Spec.Ports))
	for i := range s.Spec.Ports {
		servicePort := &s.Spec.Ports[i]
		if servicePort.NodePort > 0 {
			texts[i] = fmt.Sprintf("%d:%d/%s", servicePort.Port, servicePort.NodePort, servicePort.Protocol)
		} else {
			texts[i] = fmt.Sprintf("%d/%s", servicePort.Port, servicePort.Protocol)
		}
	}
	return columns.OrNone(strings.Join(texts, ","))
}

func usesIPMode(s *corev1.Service) bool {
	return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(p corev1.LoadBalancerIngress) bool { return p.IPMode != nil })
}

// dropIPModes removes the field ipMode from the status of a service.
func dropIPModes(s *corev1.Service) {
	for i := range s.Status.LoadBalancer.Ingress {
		s.Status.LoadBalancer.Ingress[i].IPMode = nil
	}
}
