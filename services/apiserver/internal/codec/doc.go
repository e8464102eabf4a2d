// Package codec turns objects into bytes and back: bodies of requests, the
// stored form, and every representation of answers. It reads the declarations
// of package registry and knows nothing of HTTP, storage or caches.
//
// An object is decoded only where a rule has to look inside. What is read most
// never is: the protobuf answer is the stored value with the resourceVersion
// spliced in (wire.go), labels and selectable fields are read from the encoded
// bytes (attributes.go), and JSON is written from them by a program per kind
// (transcoded.go, package transcode), into the buffer of the answer. A watch event's
// frame is made so too, once per version, of which an object's and a list item's JSON
// are slices (frame.go).
//
// These kinds have no program, and are decoded, and their frames kept: events of
// events.k8s.io, autoscalers and definitions of custom resources, which are stored as
// another type; API services, which are stored as JSON; and those whose defaults no
// rules (registry.Kind.Filled) tell of: DaemonSet, StatefulSet, CronJob,
// ReplicationController, LimitRange, Namespace, IngressClass, NetworkPolicy,
// CSIDriver, RuntimeClass, PriorityLevelConfiguration, and those of
// admissionregistration.k8s.io and resource.k8s.io with defaults.
package codec
