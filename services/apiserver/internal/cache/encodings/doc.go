// Package encodings keeps encodings of objects, such as JSON, within the memory budget of the
// server. Each is made once, and those that are not read are evicted first.
package encodings
