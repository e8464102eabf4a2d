package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"binnacle/services/apiserver/internal/registry/validate"
)

// classAnnotation held the class of an ingress before there was a field.
const classAnnotation = "kubernetes.io/ingress.class"

const notAddressDetail = "must be a DNS name, not an IP address"

// validateIngress validates an ingress. old is nil at creation. An update may keep violations of rules
// that did not exist when the ingress was stored.
func validateIngress(fld validate.Field, i, old *networkingv1.Ingress) {
	ingressSpec, spec := &i.Spec, fld.Child("spec")
	prior := violationsOf(old)
	if len(ingressSpec.Rules) == 0 && ingressSpec.DefaultBackend == nil {
		fld.Invalid("spec", ingressSpec.Rules, "either `defaultBackend` or `rules` must be specified")
	}
	validate.Optional(spec, "defaultBackend", ingressSpec.DefaultBackend, validateBackend)
	validate.Each(
		spec,
		"rules",
		ingressSpec.Rules,
		func(fld validate.Field, r *networkingv1.IngressRule) { validateHost(fld, r, prior.wildcard) },
	)
	validate.Each(spec, "tls", ingressSpec.TLS, func(fld validate.Field, t *networkingv1.IngressTLS) {
		validate.Each(fld, "hosts", t.Hosts, func(fld validate.Field, host *string) { fld.CheckText("", *host, formatOfHost(*host)) })
		if !prior.secret {
			fld.CheckOptionalText("secretName", t.SecretName, validate.DNSSubdomain)
		}
	})
	if ingressSpec.IngressClassName != nil {
		spec.CheckText("ingressClassName", *ingressSpec.IngressClassName, validate.DNSSubdomain)
	}
	class, hasAnnotation := i.Annotations[classAnnotation]
	if hasAnnotation && old == nil && ingressSpec.IngressClassName != nil && class != *ingressSpec.IngressClassName {
		fld.Child("annotations").Invalid(classAnnotation, class, "must match `ingressClassName` when both are specified")
	}
}

// priorViolations reports which rules a stored ingress violates.
type priorViolations struct {
	secret   bool // name of a TLS secret
	wildcard bool // paths of a host with a wildcard
}

// violationsOf returns the violations of an ingress, which may be nil.
func violationsOf(old *networkingv1.Ingress) (out priorViolations) {
	if old == nil {
		return out
	}
	for i := range old.Spec.TLS {
		name := old.Spec.TLS[i].SecretName
		out.secret = out.secret || name != "" && len(validate.DNSSubdomain(name)) > 0
	}
	for i := range old.Spec.Rules {
		r := &old.Spec.Rules[i]
		if strings.Contains(r.Host, "*") {
			found := validate.Check(func(fld validate.Field) { validatePaths(fld, r) })
			out.wildcard = out.wildcard || len(found) > 0
		}
	}
	return out
}

// formatOfHost returns the format that a host must have.
func formatOfHost(host string) validate.Format {
	if strings.Contains(host, "*") {
		return validation.IsWildcardDNS1123Subdomain
	}
	return validate.DNSSubdomain
}

// validateHost validates a host and its paths. With anyWildcardPaths, it skips the paths of a host
// with a wildcard.
func validateHost(fld validate.Field, ingressRule *networkingv1.IngressRule, anyWildcardPaths bool) {
	if ingressRule.Host != "" {
		if netutils.ParseIPSloppy(ingressRule.Host) != nil {
			fld.Invalid("host", ingressRule.Host, notAddressDetail)
		}
		fld.CheckText("host", ingressRule.Host, formatOfHost(ingressRule.Host))
	}
	if !anyWildcardPaths || !strings.Contains(ingressRule.Host, "*") {
		validatePaths(fld, ingressRule)
	}
}

func validatePaths(fld validate.Field, r *networkingv1.IngressRule) {
	validate.Optional(fld, "http", r.HTTP, func(fld validate.Field, h *networkingv1.HTTPIngressRuleValue) {
		fld.RequireSet("paths", len(h.Paths) > 0)
		validate.Each(fld, "paths", h.Paths, validatePath)
	})
}

// Sequences and suffixes that are invalid in paths of the types Exact and Prefix.
var (
	badSequences = []string{"//", "/./", "/../", "%2f", "%2F"}
	badSuffixes  = []string{"/..", "/."}
)

// validatePath validates a path according to its type, and its backend.
func validatePath(fld validate.Field, httpIngressPath *networkingv1.HTTPIngressPath) {
	if httpIngressPath.PathType == nil {
		fld.Required("pathType", "pathType must be specified")
		return
	}
	const absolute = "must be an absolute path"
	switch *httpIngressPath.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !strings.HasPrefix(httpIngressPath.Path, "/") {
			fld.Invalid("path", httpIngressPath.Path, absolute)
		}
		for _, bad := range badSequences {
			if strings.Contains(httpIngressPath.Path, bad) {
				fld.Invalid("path", httpIngressPath.Path, "must not contain '"+bad+"'")
			}
		}
		for _, bad := range badSuffixes {
			if strings.HasSuffix(httpIngressPath.Path, bad) {
				fld.Invalid("path", httpIngressPath.Path, "cannot end with '"+bad+"'")
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if httpIngressPath.Path != "" && !strings.HasPrefix(httpIngressPath.Path, "/") {
			fld.Invalid("path", httpIngressPath.Path, absolute)
		}
	default:
		validate.OneOf(fld, "pathType", *httpIngressPath.PathType,
			networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	}
	validateBackend(fld.Child("backend"), &httpIngressPath.Backend)
}

// validateBackend requires either a resource, or a service with a port.
func validateBackend(fld validate.Field, ingressBackend *networkingv1.IngressBackend) {
	switch {
	case ingressBackend.Resource != nil && ingressBackend.Service != nil:
		fld.Invalid("", "", "cannot set both resource and service backends")
	case ingressBackend.Resource != nil:
		validateParameterReference(fld.Child("resource"), ingressBackend.Resource.APIGroup, ingressBackend.Resource.Kind, ingressBackend.Resource.Name)
	case ingressBackend.Service != nil:
		fld.Child("service").CheckRequiredText("name", ingressBackend.Service.Name, validation.IsDNS1035Label)
		port := ingressBackend.Service.Port
		switch {
		case port.Name != "" && port.Number != 0:
			fld.Invalid("", "", "cannot set both port name & port number")
		case port.Name != "":
			fld.Child("service", "port").CheckText("name", port.Name, validate.PortName)
		case port.Number != 0:
			fld.Child("service", "port").CheckPort("number", port.Number)
		default:
			fld.Required("", "port name or number is required")
		}
	default:
		fld.Invalid("", "", "resource or service backend is required")
	}
}

func validateParameterReference(fld validate.Field, group *string, kind, name string) {
	if group != nil {
		fld.CheckText("apiGroup", *group, validate.DNSSubdomain)
	}
	for _, part := range []struct{ name, value string }{{"kind", kind}, {"name", name}} {
		if part.value == "" {
			fld.Required(part.name, part.name+" is required")
			continue
		}
		fld.CheckText(part.name, part.value, validate.PathSegment)
	}
}

// validateIngressStatus validates the addresses of the load balancer.
func validateIngressStatus(fld validate.Field, i, _ *networkingv1.Ingress) {
	loadBalancer := fld.Child("status", "loadBalancer")
	validate.Each(
		loadBalancer,
		"ingress",
		i.Status.LoadBalancer.Ingress,
		func(fld validate.Field, p *networkingv1.IngressLoadBalancerIngress) {
			if p.IP != "" {
				fld.CheckIP("ip", p.IP)
			}
			if p.Hostname != "" {
				fld.CheckText("hostname", p.Hostname, validate.DNSSubdomain)
				if netutils.ParseIPSloppy(p.Hostname) != nil {
					fld.Invalid("hostname", p.Hostname, notAddressDetail)
				}
			}
		},
	)
}

// ingressWarnings returns a warning if only the annotation sets the class.
func ingressWarnings(i *networkingv1.Ingress) []string {
	if _, ok := i.Annotations[classAnnotation]; !ok || i.Spec.IngressClassName != nil {
		return nil
	}
	return []string{`annotation "` + classAnnotation + `" is deprecated, please use 'spec.ingressClassName' instead`}
}
