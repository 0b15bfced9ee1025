// Messages of a dialogue, in the form of the OpenAI API.
#pragma once

#include "base/json.h"

// A message is a JSON object with the members role, content (a string, null or an array of text
// parts), tool_calls, tool_call_id, name, reasoning_content and any others. Their order is kept.
// Templates get this object; the program itself uses role and content.
typedef struct {
    Str json;          // owned, like the other strings
    Str role, content; // decoded; content is empty unless it is text
    bool has_calls;    // tool_calls is not empty
} Message;

Message message_make(Str role, Str content);
Message message_copy(const Message *m);
// Reads a parsed message. The role "developer" becomes "system", an array of text parts becomes one
// string, and tool call arguments that are JSON in a string become objects. Members that say
// nothing are dropped: null, and an empty list of calls. The content beside calls is at least "".
// False with err (exit 1), which names the member, if a template could not represent the message.
bool message_read(const Json *object, Message *out, Error *err);
// Appends an array of tools for a template. Members that are null are dropped. A function without
// "description" or "parameters", which some templates require, has an empty one.
void tools_put(const Json *tools, Buffer *out);
// For json_write_value(): if v is the member "arguments" and contains an object as a string, writes
// the object; for null or a blank string, {}.
bool message_put_arguments(Buffer *out, const Json *v);
Str content_skip_space(Str content); // removes white space at the beginning
Str content_strip(Str content);      // removes white space at both ends
bool message_is_role(Str role);      // true for the roles that a message can have
void message_free(Message *m);
