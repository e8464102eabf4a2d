// Package compress writes gzip responses from segments that are compressed once and shared.
//
// A thousand informers that start together list the same objects. A gzip stream (RFC 1952) consists
// of a header, deflate blocks (RFC 1951) and a checksum. Blocks that were compressed without
// earlier context, and that end on a byte boundary, can be joined in any order. The checksum of the
// whole follows from the checksums of the parts. So a response is divided into segments of a few
// objects. The first request that needs a segment compresses it, the cache keeps it within a byte
// budget, and later requests only copy it.
//
// A segment is identified by its content: the caller describes the representation and the version
// of every object in it, so a segment is never outdated. The Key is a keyed hash of the
// description. Package handlers uses it for lists.
package compress
