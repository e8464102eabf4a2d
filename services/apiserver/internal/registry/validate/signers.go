package validate

import (
	"fmt"
	"strings"
)

// Limits of the names of signers, in bytes.
const (
	maxSignerDomain = 253
	maxSignerPath   = 253 + 1 + 63 // a subdomain, a dot and a label
)

// CheckSignerName requires a domain and a path with one segment.
func (f Field) CheckSignerName(name, signer string) {
	if signer == "" {
		f.Required(name, "")
		return
	}
	domain, path, ok := strings.Cut(signer, "/")
	if !ok || strings.Contains(path, "/") {
		f.Invalid(name, signer, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	f.CheckMaxBytes(name, domain, maxSignerDomain)
	labels := strings.Split(domain, ".")
	// Only the first invalid part is reported.
	checkParts := func(value string, parts []string, format Format) {
		for _, part := range parts {
			messages := format(part)
			for _, msg := range messages {
				f.Invalid(name, value, fmt.Sprintf("validating label %q: %s", part, msg))
			}
			if len(messages) > 0 {
				return
			}
		}
	}
	checkParts(domain, labels, DNSLabel)
	if len(labels) < 2 {
		f.Invalid(name, domain, "should be a domain with at least two segments separated by dots")
	}
	checkParts(path, strings.Split(path, "."), DNSSubdomain)
	f.CheckMaxBytes(name, signer, maxSignerDomain+1+maxSignerPath)
}

// TrustBundleName is the Format of the name of a ClusterTrustBundle. It requires the signer's name
// as prefix, with a colon in place of the slash. The name of a bundle without a signer has no
// colon.
func TrustBundleName(signer string) Format {
	return func(name string) []string {
		if signer == "" {
			if strings.Contains(name, ":") {
				return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
			}
			return DNSSubdomain(name)
		}
		prefix := strings.ReplaceAll(signer, "/", ":") + ":"
		suffix, ok := strings.CutPrefix(name, prefix)
		if !ok {
			return []string{
				fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s:", signer,
					strings.ReplaceAll(signer, "/", ":")),
			}
		}
		return DNSSubdomain(suffix)
	}
}
