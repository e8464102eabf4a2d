// Package codec turns objects into bytes and back: bodies of requests, the
// stored form, and every representation of answers. It reads the declarations
// of package registry and knows nothing of HTTP, storage or caches.
//
// An object is decoded only where a rule has to look inside. What is read most
// never is: the protobuf answer is the stored value with the resourceVersion
// spliced in (wire.go), labels and selectable fields are read from the encoded
// bytes (attributes.go), and the JSON form is made once per version as a watch
// event's frame, of which an object's and a list item's JSON are slices
// (frame.go).
package codec
