// Package codec converts objects to bytes and back: request bodies, the stored form, and every
// representation of responses. It reads the declarations of package registry and knows nothing of
// HTTP, storage or caches.
//
// The codec decodes an object only where a rule has to inspect it. Most reads decode nothing:
//
//   - A protobuf response is the stored value with the resourceVersion spliced in (package wire).
//   - Labels and selectable fields are read from the encoded bytes (attributes.go).
//   - JSON is written from the encoded bytes by a program per kind, directly into the response
//     buffer (transcoded.go, package transcode).
//   - The frame of a watch event is written the same way, once per version. The JSON of an object
//     and of a list item are slices of a frame (frame.go).
//
// Package doccheck checks documents before they are decoded.
//
// Some kinds have no program. Their objects are decoded, and their frames are cached:
//
//   - events of events.k8s.io, autoscalers and CustomResourceDefinitions, which are stored as
//     another type;
//   - APIServices, which are stored as JSON;
//   - kinds with defaults that no rule (registry.Kind.DefaultedRules) describes: DaemonSet, StatefulSet,
//     CronJob, ReplicationController, LimitRange, Namespace, IngressClass, NetworkPolicy,
//     CSIDriver, RuntimeClass, PriorityLevelConfiguration, and the kinds of
//     admissionregistration.k8s.io and resource.k8s.io that have defaults.
package codec
