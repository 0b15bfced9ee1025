// Messages of a dialogue, in the form of the OpenAI API.
#pragma once

#include "../base/json.h"

// A JSON object with the members role, content (a string, null or an array of text parts),
// tool_calls, tool_call_id, name, reasoning_content and any others, in their order. Templates get
// this object; the program itself uses role and content.
typedef struct {
    Str json;          // owned, as the other texts
    Str role, content; // decoded; content is empty unless it is text
    bool has_calls;    // tool_calls is not empty
} Message;

Message message_make(Str role, Str content);
// Reads a parsed message. "developer" becomes "system", an array of text parts one string, and
// arguments of tool calls that are strings of JSON become objects. False with err (exit 1), naming
// the member, if a template could not represent it.
bool message_read(const Json *object, Message *out, Error *err);
Str content_skip_space(Str content); // without white space at its beginning
Str content_strip(Str content);      // or at both ends
bool message_is_role(Str role);      // whether a message may have this role
void message_free(Message *m);
