// Package api holds the names that the suite shares: the API domain, the media types and the
// reserved namespaces. It also reads single query parameters.
package api

import (
	"slices"
	"strings"
)

// Values for the placeholders of the specification.
const (
	// Domain is the suffix of group names and media-type parameters.
	Domain = "k8s.io"
	// LabelDomain is the suffix of labels, annotations and secret types.
	LabelDomain = "kubernetes.io"
	// Platform is the name in vendor media types.
	Platform = "kubernetes"

	// SystemNamespace holds the system's own objects.
	SystemNamespace = "kube-system"
	// PublicNamespace is readable by everyone.
	PublicNamespace = "kube-public"
	// NodeLeaseNamespace holds the heartbeat leases of nodes.
	NodeLeaseNamespace = "kube-node-lease"
	// DefaultNamespace is the namespace that clients use by default.
	DefaultNamespace = "default"
)

// Media types (specification: "Media types" and "Patch media types").
const (
	MediaJSON     = "application/json"
	MediaYAML     = "application/yaml"
	MediaProtobuf = "application/vnd." + Platform + ".protobuf"
	// MediaCBOR is one data item (RFC 8949), MediaCBORSequence a sequence of them (RFC 8742).
	MediaCBOR         = "application/cbor"
	MediaCBORSequence = "application/cbor-seq"

	MediaJSONPatch      = "application/json-patch+json"
	MediaMergePatch     = "application/merge-patch+json"
	MediaStrategicPatch = "application/strategic-merge-patch+json"
	MediaApplyYAML      = "application/apply-patch+yaml"
	MediaApplyCBOR      = "application/apply-patch+cbor"
)

// Users and groups with a special meaning.
const (
	UserAnonymous        = "system:anonymous"
	GroupAuthenticated   = "system:authenticated"
	GroupUnauthenticated = "system:unauthenticated"
	GroupMasters         = "system:masters"

	// UserSuitePrefix is the prefix of the user names of the suite's own services, and GroupSuite
	// is their group.
	UserSuitePrefix = "system:binnacle:"
	GroupSuite      = "system:binnacle"
)

// IsSuite reports whether a user has the name or the group of the suite's own services.
func IsSuite(name string, groups []string) bool {
	return strings.HasPrefix(name, UserSuitePrefix) || slices.Contains(groups, GroupSuite)
}
