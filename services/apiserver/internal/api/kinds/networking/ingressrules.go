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

const notAddress = "must be a DNS name, not an IP address"

// ingressRules validates an ingress. old is nil at creation. Violations that the old one has from
// before a rule existed may stay.
func ingressRules(fldPath validate.Path, i, old *networkingv1.Ingress) {
	s, spec := &i.Spec, fldPath.Child("spec")
	retained := keptOf(old)
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		fldPath.Invalid("spec", s.Rules, "either `defaultBackend` or `rules` must be specified")
	}
	validate.Optional(spec, "defaultBackend", s.DefaultBackend, backendRules)
	validate.Each(spec, "rules", s.Rules, func(fldPath validate.Path, r *networkingv1.IngressRule) { hostRules(fldPath, r, retained.wildcard) })
	validate.Each(spec, "tls", s.TLS, func(fldPath validate.Path, t *networkingv1.IngressTLS) {
		validate.Each(fldPath, "hosts", t.Hosts, func(fldPath validate.Path, host *string) { fldPath.Text("", *host, hostFormat(*host)) })
		if !retained.secret {
			fldPath.OptionalText("secretName", t.SecretName, validate.DNSSubdomain)
		}
	})
	if s.IngressClassName != nil {
		spec.Text("ingressClassName", *s.IngressClassName, validate.DNSSubdomain)
	}
	if class, ok := i.Annotations[classAnnotation]; ok && old == nil && s.IngressClassName != nil && class != *s.IngressClassName {
		fldPath.Child("annotations").Invalid(classAnnotation, class, "must match `ingressClassName` when both are specified")
	}
}

// priorViolations holds the violations of a stored ingress.
type priorViolations struct{ secret, wildcard bool }

func keptOf(old *networkingv1.Ingress) (k priorViolations) {
	if old == nil {
		return k
	}
	for i := range old.Spec.TLS {
		name := old.Spec.TLS[i].SecretName
		k.secret = k.secret || name != "" && len(validate.DNSSubdomain(name)) > 0
	}
	for i := range old.Spec.Rules {
		r := &old.Spec.Rules[i]
		if strings.Contains(r.Host, "*") {
			found := validate.Check(func(fldPath validate.Path) { pathsRules(fldPath, r) })
			k.wildcard = k.wildcard || len(found) > 0
		}
	}
	return k
}

func hostFormat(host string) validate.Format {
	if strings.Contains(host, "*") {
		return validation.IsWildcardDNS1123Subdomain
	}
	return validate.DNSSubdomain
}

func hostRules(fldPath validate.Path, r *networkingv1.IngressRule, anyOfWildcard bool) {
	if r.Host != "" {
		if netutils.ParseIPSloppy(r.Host) != nil {
			fldPath.Invalid("host", r.Host, notAddress)
		}
		fldPath.Text("host", r.Host, hostFormat(r.Host))
	}
	if !anyOfWildcard || !strings.Contains(r.Host, "*") {
		pathsRules(fldPath, r)
	}
}

func pathsRules(fldPath validate.Path, r *networkingv1.IngressRule) {
	validate.Optional(fldPath, "http", r.HTTP, func(fldPath validate.Path, h *networkingv1.HTTPIngressRuleValue) {
		fldPath.Present("paths", len(h.Paths) > 0)
		validate.Each(fldPath, "paths", h.Paths, pathRules)
	})
}

// Invalid parts of paths that are compared by their elements.
var (
	badSequences = []string{"//", "/./", "/../", "%2f", "%2F"}
	badSuffixes  = []string{"/..", "/."}
)

func pathRules(fldPath validate.Path, p *networkingv1.HTTPIngressPath) {
	if p.PathType == nil {
		fldPath.Required("pathType", "pathType must be specified")
		return
	}
	const absolute = "must be an absolute path"
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !strings.HasPrefix(p.Path, "/") {
			fldPath.Invalid("path", p.Path, absolute)
		}
		for _, bad := range badSequences {
			if strings.Contains(p.Path, bad) {
				fldPath.Invalid("path", p.Path, "must not contain '"+bad+"'")
			}
		}
		for _, bad := range badSuffixes {
			if strings.HasSuffix(p.Path, bad) {
				fldPath.Invalid("path", p.Path, "cannot end with '"+bad+"'")
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !strings.HasPrefix(p.Path, "/") {
			fldPath.Invalid("path", p.Path, absolute)
		}
	default:
		validate.OneOf(fldPath, "pathType", *p.PathType,
			networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	}
	backendRules(fldPath.Child("backend"), &p.Backend)
}

func backendRules(fldPath validate.Path, b *networkingv1.IngressBackend) {
	switch {
	case b.Resource != nil && b.Service != nil:
		fldPath.Invalid("", "", "cannot set both resource and service backends")
	case b.Resource != nil:
		referenceRules(fldPath.Child("resource"), b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name)
	case b.Service != nil:
		fldPath.Child("service").RequiredText("name", b.Service.Name, validation.IsDNS1035Label)
		port := b.Service.Port
		switch {
		case port.Name != "" && port.Number != 0:
			fldPath.Invalid("", "", "cannot set both port name & port number")
		case port.Name != "":
			fldPath.Child("service", "port").Text("name", port.Name, validate.PortName)
		case port.Number != 0:
			fldPath.Child("service", "port").Port("number", port.Number)
		default:
			fldPath.Required("", "port name or number is required")
		}
	default:
		fldPath.Invalid("", "", "resource or service backend is required")
	}
}

// referenceRules validates a reference to an object of any kind.
func referenceRules(fldPath validate.Path, group *string, kind, name string) {
	if group != nil {
		fldPath.Text("apiGroup", *group, validate.DNSSubdomain)
	}
	for _, part := range []struct{ name, value string }{{"kind", kind}, {"name", name}} {
		if part.value == "" {
			fldPath.Required(part.name, part.name+" is required")
			continue
		}
		fldPath.Text(part.name, part.value, validate.PathSegment)
	}
}

func ingressStatusRules(fldPath validate.Path, i, _ *networkingv1.Ingress) {
	points := fldPath.Child("status", "loadBalancer")
	validate.Each(points, "ingress", i.Status.LoadBalancer.Ingress, func(fldPath validate.Path, p *networkingv1.IngressLoadBalancerIngress) {
		if p.IP != "" {
			fldPath.IP("ip", p.IP)
		}
		if p.Hostname != "" {
			fldPath.Text("hostname", p.Hostname, validate.DNSSubdomain)
			if netutils.ParseIPSloppy(p.Hostname) != nil {
				fldPath.Invalid("hostname", p.Hostname, notAddress)
			}
		}
	})
}

func ingressWarnings(i *networkingv1.Ingress) []string {
	if _, ok := i.Annotations[classAnnotation]; !ok || i.Spec.IngressClassName != nil {
		return nil
	}
	return []string{`annotation "` + classAnnotation + `" is deprecated, please use 'spec.ingressClassName' instead`}
}
