// Package api holds the names that the whole suite shares: the API domain, the
// platform's media types and the reserved namespaces; and how a single parameter of
// a query is read.
package api

import (
	"slices"
	"strings"
)

// The placeholders of the specification and what they stand for.
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
	// DefaultNamespace is where clients work when they name none.
	DefaultNamespace = "default"
)

// Media types (specification: "Media types" and "Patch media types").
const (
	MediaJSON     = "application/json"
	MediaYAML     = "application/yaml"
	MediaProtobuf = "application/vnd." + Platform + ".protobuf"
	// MediaCBOR is one data item, MediaCBORSequence one after the other (RFC
	// 8949, RFC 8742).
	MediaCBOR         = "application/cbor"
	MediaCBORSequence = "application/cbor-seq"

	MediaJSONPatch      = "application/json-patch+json"
	MediaMergePatch     = "application/merge-patch+json"
	MediaStrategicPatch = "application/strategic-merge-patch+json"
	MediaApplyYAML      = "application/apply-patch+yaml"
	MediaApplyCBOR      = "application/apply-patch+cbor"
)

// Users and groups with a meaning of their own.
const (
	UserAnonymous        = "system:anonymous"
	GroupAuthenticated   = "system:authenticated"
	GroupUnauthenticated = "system:unauthenticated"
	GroupMasters         = "system:masters"

	// UserSuitePrefix begins the names of the suite's own services, GroupSuite is
	// the group that they are in.
	UserSuitePrefix = "system:binnacle:"
	GroupSuite      = "system:binnacle"
)

// IsSuite tells whether a user has the name or the group of the suite's own
// services.
func IsSuite(name string, groups []string) bool {
	return strings.HasPrefix(name, UserSuitePrefix) || slices.Contains(groups, GroupSuite)
}
