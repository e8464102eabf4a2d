// Package compress makes gzip answers from segments that are compressed once
// and shared.
//
// A thousand informers that start together list the same objects. A gzip stream
// (RFC 1952) is a header, deflate blocks (RFC 1951) and a checksum; blocks that
// were compressed without looking at what stood before them, and that end on a
// byte's boundary, can be joined in any order, and the checksum of the whole
// follows from those of the parts. So an answer is divided into segments of a
// few objects, each is compressed by the first request that needs it and kept
// within a budget of bytes, and the next request only copies.
//
// A segment is named by what it holds: the caller describes the representation
// and every object's version in it, so a segment is never out of date, and the Key
// is a keyed hash of that. Lists of the endpoints use the package.
package compress
